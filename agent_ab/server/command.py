"""The command line and the whole environment of a model server: nothing is left to defaults or inherited."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_ab.config import ArmSettings, Sampling, Speculation
from agent_ab.engine.engine import NGRAM_OPTIONS, SPECULATION_FLAGS, SYSTEM_PATH, Engine
from agent_ab.errors import ApparatusError, UserError
from agent_ab.model import Step
from agent_ab.models.models import Model

HOST = "127.0.0.1"
ALIAS = "local"
"""The model's name in the API, whatever the file is called."""
SYSTEM_CONFIG = Path("/etc/llama.cpp/config.ini")
"""llama-server applies this file before its command line, so its mere presence spoils every arm."""
SAMPLERS = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
"""llama-server's own default chain, said aloud because a GGUF can carry another (`general.sampling.*`)."""
RESERVED = frozenset(
    [
        "--spec-type",
        "--spec-default",
        "--model",
        "-m",
        "--host",
        "--port",
        "--alias",
        "-a",
        "--api-key",
        "--api-key-file",
        "--log-file",
        "--log-disable",
        "--log-colors",
        "--log-jsonl",
        "--verbosity",
        "--log-verbosity",
        "-lv",
    ]
)
"""Options that are ours: `--spec-type` accumulates, and the rest would hide the server from its own proof."""
DRAFT_FLAG = "--spec-draft-model"
SECRET = "<key>"
PRIVATE = "<private directory>"


@dataclass(frozen=True, slots=True)
class Command:
    """How one arm's server is started."""

    argv: tuple[str, ...]
    omitted: tuple[str, ...]
    """Options that this build lacks, so that its own default holds; the same in both arms."""

    @property
    def comparable(self) -> tuple[str, ...]:
        """Return argv without what may differ between attempts: program, model file and port (all proven elsewhere)."""
        hidden = {"--port": "<port>", "--model": "<model>", DRAFT_FLAG: "<draft>"}
        shown = [hidden.get(before, word) for before, word in zip(self.argv, self.argv[1:], strict=False)]
        return ("llama-server", *shown)


def command(engine: Engine, settings: ArmSettings, model: Model, port: int, seed: int = 0) -> Command:
    """Return the command line of one arm. `seed` is the default of requests that name none. Raises UserError."""
    server = settings.server
    for word in server.extra_args:
        if word.partition("=")[0] in RESERVED:
            raise UserError(
                f"server.extra_args: {word} is set by agent-ab; use the keys of server and server.speculation"
            )
    builder = _Builder(engine.flags)
    builder.add(("-c", server.context), ("-np", 1), ("-ngl", server.gpu_layers), ("--fit", "off"))
    builder.add(("-t", server.threads), ("-tb", server.threads))
    builder.add(("-b", server.batch), ("-ub", server.ubatch), ("-fa", server.flash_attention))
    builder.add(("-ctk", server.kv_type_k), ("-ctv", server.kv_type_v))
    builder.switch("--no-cache-prompt", "--no-context-shift", "--no-cache-idle-slots")
    builder.add(("--cache-ram", 0), ("--ctx-checkpoints", 0), ("--cache-reuse", 0), ("--slot-prompt-similarity", 0))
    _sampling(builder, settings.sampling, seed)
    builder.switch("--offline", "--no-ui" if "--no-ui" in engine.flags else "--no-webui")
    builder.switch("--jinja", "--metrics", "--slots")
    builder.add(("-lv", 4), ("--log-colors", "off"), ("--alias", ALIAS))
    if server.chat_template_file:
        builder.add(("--chat-template-file", Path(server.chat_template_file).expanduser().absolute()))
    if server.reasoning_budget is not None:
        builder.add(("--reasoning-budget", server.reasoning_budget))
    _speculation(builder, server.speculation, model)
    start = (str(engine.binary), "--model", str(model.path.absolute()), "--host", HOST, "--port", str(port))
    return Command((*start, *builder.argv, *server.extra_args), tuple(builder.omitted))


class _Builder:
    """Collect options, leaving out those that the build lacks."""

    def __init__(self, flags: frozenset[str]) -> None:
        self._flags = flags
        self.argv: list[str] = []
        self.omitted: list[str] = []

    def switch(self, *flags: str) -> None:
        for flag in flags:
            self._put(flag)

    def add(self, *pairs: tuple[str, object]) -> None:
        for flag, value in pairs:
            self._put(flag, str(value))

    def known(self, *pairs: tuple[str, object]) -> None:
        """Add those that the build knows; what only this arm uses is not noted, or the arms would seem to drift."""
        self.add(*(pair for pair in pairs if pair[0] in self._flags))

    def lacks(self, *flags: str) -> None:
        """Note those of `flags` that the build lacks, though this arm does not ask for them."""
        self.omitted += [flag for flag in flags if flag not in self._flags]

    def _put(self, flag: str, *value: str) -> None:
        if flag in self._flags:
            self.argv += [flag, *value]
        else:
            self.omitted.append(flag)


def _sampling(builder: _Builder, sampling: Sampling, seed: int) -> None:
    builder.add(("--seed", seed), ("--samplers", SAMPLERS))
    builder.add(("--temp", sampling.temperature), ("--top-p", sampling.top_p))
    builder.add(("--top-k", sampling.top_k), ("--min-p", sampling.min_p))
    builder.add(("--repeat-penalty", sampling.repeat_penalty), ("--repeat-last-n", 64))
    builder.add(("--presence-penalty", sampling.presence_penalty), ("--frequency-penalty", sampling.frequency_penalty))
    # Off, and said aloud all the same: two builds may have other defaults.
    builder.add(("--xtc-probability", 0), ("--mirostat", 0), ("--typical", 1), ("--top-nsigma", -1))
    builder.add(("--dynatemp-range", 0), ("--dry-multiplier", 0), ("--dry-base", 1.75))
    builder.add(("--dry-allowed-length", 2), ("--dry-penalty-last-n", 64))


def _speculation(builder: _Builder, speculation: Speculation, model: Model) -> None:
    """Add the declared speculation; the baseline gets `none` and no draft option (a draft model would imply a type)."""
    kinds = [kind.strip() for kind in speculation.type.split(",")]
    builder.add(("--spec-type", speculation.type))
    for kind in kinds:
        for key, (flag, default) in NGRAM_OPTIONS.get(kind, {}).items():
            value = getattr(speculation, key)
            builder.known((flag, default if value is None else value))
    if not any(kind.startswith("draft-") for kind in kinds):
        builder.lacks(*SPECULATION_FLAGS.values())
        return
    if model.draft:
        layers = speculation.draft_gpu_layers
        builder.add((DRAFT_FLAG, model.draft.path.absolute()))
        builder.known(("--spec-draft-ngl", "all" if layers is None else layers))
    defaults = {"n_max": 3, "n_min": 0, "p_min": 0.0, "sampling": "greedy", "kv_type_k": "f16", "kv_type_v": "f16"}
    for key, flag in SPECULATION_FLAGS.items():
        value = getattr(speculation, key)
        value = defaults.get(key) if value is None else value
        if isinstance(value, tuple):
            value = ",".join(map(str, value))
        if value is None:
            builder.lacks(flag)
        else:
            builder.add((flag, value))


def environment(engine: Engine, key: str, home: Path) -> dict[str, str]:
    """Return the server's whole environment.

    No `LLAMA_*` but the key: they are options too, and `--spec-type` from there accumulates with ours. HOME and
    XDG_CONFIG_HOME are an empty directory, where llama-server looks for its configuration. LD_LIBRARY_PATH is passed
    only when the probe saw that the binary does not find its libraries without. OMP_WAIT_POLICY: OpenMP threads that
    spin while they wait starve each other when other work wants the cores (33 against 0.6 tokens/s were seen on 2).
    """
    env = {
        "PATH": SYSTEM_PATH,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "OMP_WAIT_POLICY": "passive",
        "LLAMA_API_KEY": key,
    }
    if engine.library_path:
        env["LD_LIBRARY_PATH"] = engine.library_path
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    return env if devices is None else env | {"CUDA_VISIBLE_DEVICES": devices}


def comparable_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment as it may be stored: without the key, and without the private directory's name."""
    return dict(env) | {"LLAMA_API_KEY": SECRET, "HOME": PRIVATE, "XDG_CONFIG_HOME": PRIVATE}


def refuse_system_config(path: Path = SYSTEM_CONFIG) -> None:
    """Raise ApparatusError when a system-wide configuration would change both command lines unseen."""
    if path.exists():
        raise ApparatusError(Step.SERVER, f"{path} is applied before the command line; move it away")
