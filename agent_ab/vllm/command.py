"""The command line and the whole environment of a vLLM server: nothing is inherited, and what makes two runs differ is off. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_ab.config import ArmSettings, Server, Speculation
from agent_ab.errors import UserError
from agent_ab.model import Json

HOST, ALIAS = "127.0.0.1", "local"
SECRET, PRIVATE = "<key>", "<private directory>"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
N_MAX = 3
"""Drafted tokens when the profile names no number; vLLM itself has no default for most methods."""
METHODS: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "ngram": frozenset({"n_max", "lookup_min", "lookup_max", "synth_rates"}),
    "mtp": frozenset({"n_max", "sampling", "synth_rates"}),
    "eagle3": frozenset({"n_max", "sampling", "synth_rates", "draft"}),
    "dflash": frozenset({"n_max", "sampling", "synth_rates", "draft"}),
    "draft_model": frozenset({"n_max", "sampling", "synth_rates", "draft"}),
}
"""The methods that a profile can ask for (`server.speculation.type`), and the keys that each knows."""
DRAFTED = frozenset(method for method, keys in METHODS.items() if "draft" in keys)
OPTIONAL = ("--enable-per-request-metrics", "--per-request-spec-decode-metrics")
"""Options that only make vLLM tell more; one that does not know them is asked without."""
RESERVED = frozenset(
    {"--speculative-config", "--spec-method", "--spec-model", "--spec-tokens", "--host", "--port", "--uds", "--api-key"}
    | {"--model", "--served-model-name", "--enable-prefix-caching", "--no-enable-prefix-caching", "--max-num-seqs"}
    | {"--max-model-len", "--seed", "--generation-config", "--chat-template", "--kv-cache-dtype", "--config"}
    | {"--disable-log-stats", "--disable-uvicorn-access-log", "--data-parallel-size", "--api-server-count"}
)
"""Options that are ours: a second value would win over the declared one, or would hide the server from its own proof."""
_LLAMA_ONLY = ("gpu_layers", "threads", "flash_attention", "batch", "ubatch", "reasoning_budget")
_KV_TYPES = {"f16": "auto"}
"""llama-server's name for "as the model is"; any other name must be vLLM's own."""


@dataclass(frozen=True, slots=True)
class Command:
    """How one arm's vLLM is started."""

    argv: tuple[str, ...]
    omitted: tuple[str, ...]
    """Options that this vLLM lacks; the same in both arms."""

    @property
    def comparable(self) -> tuple[str, ...]:
        """Return argv without what may differ between attempts: program, model directory and port."""
        port = self.argv.index("--port") + 1
        return ("vllm", "serve", "<model>", *self.argv[3:port], "<port>", *self.argv[port + 1 :])


def speculative_config(speculation: Speculation) -> dict[str, Json] | None:
    """Return the value of `--speculative-config`; None: no speculation. Raises UserError that names the key."""
    kind = speculation.type
    if kind not in METHODS:
        raise UserError(f"server.speculation.type: for vLLM it is one of {', '.join(METHODS)}, not {kind!r}")
    for key in type(speculation).model_fields:
        if key != "type" and key not in METHODS[kind] and getattr(speculation, key) is not None:
            raise UserError(f"server.speculation.{key}: has no effect on vLLM's method {kind!r}; remove the key")
    if kind == "none":
        return None
    asked: dict[str, Json] = {"method": kind, "num_speculative_tokens": speculation.n_max or N_MAX}
    if kind in DRAFTED:
        draft = speculation.draft
        if draft is None or draft.source != "file" or not draft.path:
            raise UserError(
                f"server.speculation.draft: {kind} drafts with a model of its own: give its directory as path"
            )
        asked["model"] = str(Path(draft.path).expanduser().absolute())
    if kind == "ngram":
        longest = speculation.lookup_max or speculation.lookup_min or 5
        asked |= {"prompt_lookup_min": speculation.lookup_min or longest, "prompt_lookup_max": longest}
    else:
        asked["draft_sample_method"] = speculation.sampling or "greedy"
    if speculation.synth_rates is not None:
        asked |= {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": list(speculation.synth_rates)}
    return asked


def require(server: Server) -> None:
    """Refuse keys that vLLM would silently ignore. Raises UserError that names the first."""
    default = Server()
    for key in _LLAMA_ONLY:
        if getattr(server, key) != getattr(default, key):
            raise UserError(
                f"server.{key}: has no effect on vLLM; remove it, server.extra_args takes vLLM's own options"
            )
    if server.kv_type_k != server.kv_type_v:
        raise UserError("server.kv_type_v: vLLM has one type for keys and values; give both the same")
    for word in server.extra_args:
        if word.partition("=")[0].replace("_", "-") in RESERVED:
            raise UserError(
                f"server.extra_args: {word} is set by agent-ab; use the keys of server and server.speculation"
            )
    for name in server.env:
        if name.startswith(("VLLM_API_KEY", "HF_HUB_OFFLINE", "VLLM_SERVER_DEV_MODE")):
            raise UserError(f"server.env: {name} is set by agent-ab")
    speculative_config(server.speculation)


def command(
    binary: Path, optional: frozenset[str], settings: ArmSettings, model: Path, port: int, seed: int
) -> Command:
    """Return the command line of one arm; `optional` are those of OPTIONAL that this vLLM knows. Raises UserError."""
    server = settings.server
    require(server)
    argv = [str(binary), "serve", str(model.absolute()), "--host", HOST, "--port", str(port)]
    argv += ["--served-model-name", ALIAS, "--seed", str(seed)]
    argv += ["--max-model-len", str(server.context), "--max-num-seqs", "1", "--no-enable-prefix-caching"]
    argv += ["--kv-cache-dtype", _KV_TYPES.get(server.kv_type_k, server.kv_type_k)]
    # `auto` would let the model's own sampling settings fill in what a request leaves out.
    argv += ["--generation-config", "vllm", "--enable-prompt-tokens-details"]
    if server.chat_template_file:
        argv += ["--chat-template", str(Path(server.chat_template_file).expanduser().absolute())]
    omitted = [flag for flag in OPTIONAL if flag not in optional]
    if OPTIONAL[0] in optional:
        argv.append(OPTIONAL[0])
    asked = speculative_config(server.speculation)
    if asked is not None:
        argv += ["--speculative-config", json.dumps(asked, sort_keys=True)]
        # vLLM refuses to start with this option and without speculation.
        argv += [OPTIONAL[1], "summary"] if OPTIONAL[1] in optional else []
    return Command((*argv, *server.extra_args), tuple(omitted))


@dataclass(frozen=True, slots=True)
class Own:
    """What an environment holds that is this attempt's or this machine's own."""

    key: str
    home: Path
    """A directory that is empty at the start."""
    cache: Path
    """Keeps what vLLM compiles, for both arms."""
    kv_gib: int
    """Room for the key-value cache; read by the CPU build only."""


def environment(binary: Path, server: Server, own: Own, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the server's whole environment; from ours it gets which GPUs it may see.

    No `VLLM_*` of the user's: those are options, too.
    """
    env = {
        "PATH": f"{binary.parent}:{SYSTEM_PATH}",
        "HOME": str(own.home),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CACHE_ROOT": str(own.cache),
        "TORCHINDUCTOR_CACHE_DIR": str(own.cache / "inductor"),
        "TRITON_CACHE_DIR": str(own.cache / "triton"),
        "VLLM_CPU_KVCACHE_SPACE": str(own.kv_gib),
        "VLLM_API_KEY": own.key,
    }
    devices = inherited.get("CUDA_VISIBLE_DEVICES")
    return env | ({} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}) | dict(server.env)


def comparable_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment as it may be stored: without the key, and without the private directory's name."""
    return dict(env) | {"VLLM_API_KEY": SECRET, "HOME": PRIVATE}
