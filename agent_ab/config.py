"""Profiles, seeds and flags: TOML from outside becomes frozen settings here, once."""

import difflib
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_ab.errors import UserError
from agent_ab.files import text_of
from agent_ab.model import Arm, SandboxKind, SeedMode, ServerLife
from agent_ab.nested import flatten, merge
from agent_ab.pair.speculation import BASELINE, KINDS, MOST, nameable
from agent_ab.pair.variable import VARIABLES, named
from agent_ab.reading import TOML_BYTES, explain, toml

T = TypeVar("T", bound=BaseModel)


class Strict(BaseModel):
    """Frozen, and any unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Draft(Strict):
    """The draft model of `draft-simple`, `draft-eagle3`, `draft-dflash` and `draft-dspark`."""

    source: Literal["file", "self", "smollm2", "generated"] = "file"
    """`self`: the target's own file, `smollm2`: the plain demo model, `generated`: made for a scripted target."""
    path: str = ""
    """For `file`: the GGUF."""
    acceptance: float = Field(1.0, gt=0, le=1)
    """For `generated`: the share of drafted tokens that the script's own replies will accept."""


class Speculation(Strict):
    """How the server speculates; every key becomes a `--spec-*` flag."""

    type: str = "none"
    """One of `--spec-type`'s values; a comma list combines n-gram types with one draft type."""
    draft: Draft | None = None
    draft_gpu_layers: int | Literal["all"] | None = None
    n_max: int | None = Field(None, ge=1, le=MOST)
    n_min: int | None = Field(None, ge=0)
    p_min: float | None = Field(None, ge=0, le=1)
    sampling: Literal["greedy", "probabilistic"] | None = None
    kv_type_k: str | None = None
    """KV-cache type of the draft context; llama-server's default is f16, whatever the target's is."""
    kv_type_v: str | None = None
    synth_rates: tuple[float, ...] | None = None
    """Forced acceptance rates (a control: the text is invalid unless all are 0)."""
    ngram_match: int | None = Field(None, ge=1)
    """`ngram-mod`: length of the looked-up piece, in tokens."""
    ngram_min: int | None = Field(None, ge=0)
    ngram_max: int | None = Field(None, ge=1)
    """`ngram-mod`: fewest and most drafted tokens."""
    ngram_size: int | None = Field(None, ge=1)
    """`ngram-simple`, `ngram-map-k`, `ngram-map-k4v`: length of the looked-up piece, in tokens."""
    ngram_draft: int | None = Field(None, ge=1)
    """The same types: length of a draft, in tokens."""
    ngram_hits: int | None = Field(None, ge=1)
    """The same types: how often a piece must have been seen."""
    lookup_min: int | None = Field(None, ge=1)
    """vLLM's `ngram`: shortest and longest looked-up piece, in tokens."""
    lookup_max: int | None = Field(None, ge=1)


class Server(Strict):
    """Everything that a model server is told; nothing is left to its defaults."""

    engine: Literal["llama-server", "vllm", "attached"] = "llama-server"
    """`attached`: a server that somebody else started; its pairs are UNPROVEN (docs/engines.md)."""
    binary: str = ""
    """Path of a llama-server; empty: `AGENT_AB_LLAMA_SERVER`, `PATH`, our own build, in this order. Or of a vllm."""
    url: str = ""
    """`attached`: scheme, host and port."""
    key_variable: str = ""
    """`attached`: the environment variable that holds the server's key; empty: it asks for none."""
    model_name: str = ""
    """`attached`: what the server calls the model; empty: the only one that it lists."""
    env: dict[str, str] = {}
    """`vllm`: variables on top of ours. No secrets: they are recorded."""
    context: int = Field(8192, ge=256)
    gpu_layers: int | Literal["all"] = 0
    threads: int = Field(2, ge=1)
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    flash_attention: Literal["on", "off"] = "on"
    batch: int = Field(512, ge=1)
    ubatch: int = Field(256, ge=1)
    chat_template_file: str = ""
    """A chat template that replaces the model's own."""
    reasoning_budget: int | None = None
    load_stall_s: float = Field(120, gt=0)
    """Give up on a server that loads, or has a request open, when its log, memory and CPU stood still for so long."""
    extra_args: tuple[str, ...] = ()
    speculation: Speculation = Speculation()


class Sampling(Strict):
    """Pinned by the proxy into every request, the same in both arms."""

    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(0.95, gt=0, le=1)
    top_k: int = Field(20, ge=0)
    min_p: float = Field(0.0, ge=0, le=1)
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0


class ModelFile(Strict):
    """Which GGUF the server loads."""

    source: Literal["file", "smollm2-mtp", "scripted"] = "file"
    path: str = ""
    """For `file`: the GGUF."""
    script: str = ""
    """For `scripted`: the name of a script in the task's `scripts/` directory."""
    quantisation: Literal["", "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"] = ""
    """For our own models: write their matrices in this type. A `file` is quantised by llama-quantize."""


class Agent(Strict):
    """Who answers the instruction, and its limits."""

    kind: Literal["builtin", "opencode", "command", "oracle", "nop"] = "builtin"
    protocol: Literal["tools", "json"] = "tools"
    """`tools`: OpenAI tool calls. `json`: one JSON action a turn under a schema, for templates without tools."""
    response_budget: int = Field(8192, ge=16)
    """Greatest number of tokens of one reply (`max_tokens`)."""
    max_turns: int = Field(50, ge=1)
    time_limit_s: float = Field(480, gt=0)
    reasoning_effort: str = ""
    prompt: str = ""
    """`builtin`, `opencode`: the system prompt's first words, instead of the agent's own."""
    startup_limit_s: float = Field(120, gt=0)
    """`opencode`, `command`: an agent that has asked the model nothing for so long has not started (INVALID)."""
    exit_limit_s: float = Field(20, gt=0)
    """`opencode`: it is ended when its work is done and it still has not exited after so long."""
    clock: str = Field("", pattern=r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)?$")
    """Where the clock of each of the agent's processes begins, UTC; needs libfaketime. Empty: the real time."""
    binary: str = ""
    """`opencode`: the program; empty: the one on PATH, the one in our cache, or one from npm, in this order."""
    version: str = ""
    """`opencode`: the version that must run; empty: any, else the one that was tried. `command`: only recorded."""
    slim: bool = False
    """`opencode`: a short prompt of ours and four tools, for small contexts."""
    command: tuple[str, ...] = ()
    """`command`: its argv; {prompt} {base_url} {model} {workspace} {home} are filled in. No {prompt}: it comes on stdin."""
    env: dict[str, str] = {}
    """`command`: variables on top of the box's, filled in like `command`. No secrets: they are recorded."""
    mounts: dict[str, str] = {}
    """`command`: path in the box = file or directory of this machine that is shown there, read-only."""


class Sandbox(Strict):
    """The box of the agent and of the checks."""

    kind: SandboxKind = SandboxKind.BWRAP
    memory_mb: int = Field(4096, ge=64)
    processes: int = Field(512, ge=8)
    file_size_mb: int = Field(100, ge=1)
    tmp_mb: int = Field(256, ge=1)
    open_files: int = Field(1024, ge=32)


class ArmSettings(Strict):
    """One arm's full, resolved setting."""

    model: ModelFile = ModelFile()
    server: Server = Server()
    sampling: Sampling = Sampling()
    agent: Agent = Agent()
    sandbox: Sandbox = Sandbox()
    seed_mode: SeedMode = SeedMode.FIXED


class Profile(ArmSettings):
    """A profile file: what both arms share, and what makes them differ."""

    name: str = ""
    description: str = ""
    variable: str
    """The declared variable, `server.speculation` for example (agent_ab/pair/variable.py lists all); only it differs."""
    baseline: dict[str, Any] = {}
    """Overrides of the shared settings, in the same shape."""
    candidate: dict[str, Any] = {}
    candidates: dict[str, dict[str, Any]] = {}
    """Instead of `candidate`: several by name, each against the baseline (`agent-ab blocks`)."""
    server_life: ServerLife = ServerLife.FRESH
    """How long each arm's server lives: for one attempt, for all of a task's in a block, or for the whole run."""
    methods: dict[str, Speculation] = {}
    """For `agent-ab bench`: decoding methods by name, besides those that it knows."""

    def only(self, candidate: str) -> "Profile":
        """Return the profile of one of several candidates."""
        update = {"candidate": self.candidates[candidate], "candidates": {}, "name": f"{self.name}.{candidate}"}
        return self.model_copy(update=update)

    def arm(self, arm: Arm) -> ArmSettings:
        """Return the resolved settings of `arm`. Raises UserError, pydantic.ValidationError."""
        if arm is Arm.CANDIDATE and self.candidates:
            raise UserError(
                f"the profile {self.name} has {len(self.candidates)} candidates ({', '.join(self.candidates)});"
                " `agent-ab blocks` plays them, a pair has one"
            )
        shared = self.model_dump(mode="json", include=set(ArmSettings.model_fields))
        own = self.baseline if arm is Arm.BASELINE else self.candidate
        return ArmSettings.model_validate(merge(shared, own))


class SeedOrder(Strict):
    """One seed and the arm that is played first with it."""

    seed: int = Field(ge=0, lt=2**32 - 1)
    first: Arm


class Seeds(Strict):
    """seeds.toml."""

    seeds: tuple[SeedOrder, ...]

    def first_arm(self, seed: int) -> Arm:
        """Return the arm to play first: as listed, else by the parity of the seed's sha256."""
        for entry in self.seeds:
            if entry.seed == seed:
                return entry.first
        odd = hashlib.sha256(str(seed).encode()).digest()[0] % 2
        return Arm.CANDIDATE if odd else Arm.BASELINE


def differing(baseline: ArmSettings, candidate: ArmSettings) -> tuple[str, ...]:
    """Return the dotted names of the settings in which two arms differ, sorted."""
    left, right = flatten(baseline.model_dump(mode="json")), flatten(candidate.model_dump(mode="json"))
    return tuple(sorted(k for k in left | right if left.get(k) != right.get(k)))


def undeclared(profile: Profile) -> tuple[str, ...]:
    """Return the settings in which the arms differ outside the declared variable."""
    names = differing(profile.arm(Arm.BASELINE), profile.arm(Arm.CANDIDATE))
    return tuple(name for name in names if not named(profile.variable).covers(name))


def load_profile(name: str, profiles_dir: Path) -> Profile:
    """Read the profile `name` of `profiles_dir`, or the file `name` when it ends in `.toml`. Raises UserError."""
    path = Path(name) if name.endswith(".toml") else profiles_dir / f"{name}.toml"
    if not name.endswith(".toml") and not profiles_dir.is_dir():
        raise UserError(f"no profiles directory {profiles_dir}; name one with --profiles-dir")
    if not path.is_file():
        known = sorted(p.stem for p in profiles_dir.glob("*.toml"))
        raise UserError(f"no profile {name!r} ({path}){nearest(name, known)}")
    profile = _parse(Profile, path)
    profile = profile.model_copy(update={"name": path.stem})
    if profile.variable not in VARIABLES:
        raise UserError(
            f"{path}: key 'variable': nothing is known of {profile.variable!r}{nearest(profile.variable, list(VARIABLES))}"
        )
    if profile.candidate and profile.candidates:
        raise UserError(f"{path}: has both 'candidate' and 'candidates'; name each candidate below 'candidates'")
    _check_names(profile.candidates, path, "candidates")
    _check_arm(profile.model_copy(update={"candidates": {}}), Arm.BASELINE, path, "baseline")
    for name in profile.candidates:
        _check_arm(profile.only(name), Arm.CANDIDATE, path, f"candidates.{name}")
    if not profile.candidates:
        _check_arm(profile, Arm.CANDIDATE, path, "candidate")
    _check_methods(profile, path)
    return profile


def _check_names(names: Iterable[str], path: Path, table: str) -> None:
    """Refuse names that can stand in no comma list, line or file name. Raises UserError."""
    for name in names:
        if not nameable(name):
            raise UserError(
                f"{path}: key {table + '.' + name!r}: a name has letters, digits and . _ + - only, at most 60"
            )


def _check_methods(profile: Profile, path: Path) -> None:
    """Refuse methods that could never be chosen, or of a type that no server has. Raises UserError."""
    _check_names(profile.methods, path, "methods")
    if BASELINE in profile.methods:
        raise UserError(f"{path}: key 'methods.{BASELINE}': is the baseline of every bench; choose another name")
    known = KINDS.get(profile.arm(Arm.BASELINE).server.engine, ())
    for name, speculation in profile.methods.items():
        for kind in (part.strip() for part in speculation.type.split(",") if known):
            if kind not in known:
                raise UserError(
                    f"{path}: key 'methods.{name}.type': there is no type {kind!r}{nearest(kind, list(known))}"
                )


def _check_arm(profile: Profile, arm: Arm, path: Path, prefix: str) -> None:
    """Refuse an arm's overrides that are no settings, or that differ outside the declared variable. Raises UserError."""
    _known_keys(ArmSettings, getattr(profile, arm.value), path, prefix)
    try:
        profile.arm(arm)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error, prefix=prefix)}") from None
    stray = undeclared(profile) if arm is Arm.CANDIDATE else ()
    if stray:
        where = "" if prefix == "candidate" else f" of {prefix}"
        raise UserError(
            f"{path}: the arms{where} differ in {', '.join(stray)}, outside the declared variable {profile.variable!r}"
        )


def load_seeds(path: Path) -> Seeds:
    """Read seeds.toml. Raises UserError."""
    if not path.is_file():
        raise UserError(f"no such file: {path}")
    return _parse(Seeds, path)


def nearest(name: str, known: list[str]) -> str:
    """Return a clause that names the nearest of `known`, or all of them."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; there are: {', '.join(known)}" if known else ""


def _parse(kind: type[T], path: Path) -> T:
    try:
        text = text_of(path, TOML_BYTES)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None
    data = toml(text, str(path))
    _known_keys(kind, data, path, "")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error)}") from None


def _known_keys(kind: type[BaseModel], data: Mapping[str, Any], path: Path, prefix: str) -> None:
    for key, value in data.items():
        field = kind.model_fields.get(key)
        dotted = f"{prefix}.{key}" if prefix else key
        if field is None:
            raise UserError(f"{path}: unknown key {dotted!r}{nearest(key, sorted(kind.model_fields))}")
        for where, inner, table in _tables(field.annotation, value, dotted):
            _known_keys(inner, table, path, where)


def _tables(kind: Any, value: Any, dotted: str) -> Iterable[tuple[str, type[BaseModel], Mapping[str, Any]]]:
    """Yield the tables within a value that are models, by their dotted names: itself, by name, in a list, or optional."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if isinstance(value, Mapping):
            yield dotted, kind, value
    elif get_origin(kind) is dict:
        for name, inner in value.items() if isinstance(value, Mapping) else ():
            yield from _tables(get_args(kind)[1], inner, f"{dotted}.{name}")
    elif get_origin(kind) is tuple:
        for number, inner in enumerate(value) if isinstance(value, list) else ():
            yield from _tables(get_args(kind)[0], inner, f"{dotted}.{number}")
    else:
        for one in get_args(kind):
            yield from _tables(one, value, dotted)
