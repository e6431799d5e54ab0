"""vLLM's command line and environment: the declared speculation and nothing that anyone else set."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_ab.config import ArmSettings, Draft, Server, Speculation
from agent_ab.errors import UserError
from agent_ab.pair.variable import named
from agent_ab.vllm import command as vllm_command
from agent_ab.vllm.command import OPTIONAL, Command, Own

BINARY = Path("/opt/vllm/bin/vllm")
ALL = frozenset(OPTIONAL)


def command(optional: frozenset[str] = ALL, **server: Any) -> Command:
    settings = ArmSettings(server=Server(engine="vllm", context=4096, **server))
    return vllm_command.command(BINARY, optional, settings, Path("/models/m"), 4321, 7)


def after(argv: tuple[str, ...], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def test_the_prefix_cache_is_off_and_nothing_is_left_to_the_models_own_defaults() -> None:
    argv = command().argv
    assert argv[:3] == ("/opt/vllm/bin/vllm", "serve", "/models/m")
    assert "--no-enable-prefix-caching" in argv
    assert after(argv, "--generation-config") == "vllm" and after(argv, "--max-num-seqs") == "1"
    assert after(argv, "--max-model-len") == "4096" and after(argv, "--seed") == "7"
    assert after(argv, "--kv-cache-dtype") == "auto" and after(argv, "--served-model-name") == "local"


def test_no_speculation_is_no_option_and_vllm_is_not_asked_to_tell_of_it() -> None:
    argv = command().argv
    assert "--speculative-config" not in argv and "--per-request-spec-decode-metrics" not in argv
    assert "--enable-per-request-metrics" in argv


@pytest.mark.parametrize(
    ("speculation", "config"),
    [
        (
            Speculation(type="ngram", n_max=4, lookup_min=1, lookup_max=3),
            {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3},
        ),
        (
            Speculation(type="ngram"),
            {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 5, "prompt_lookup_max": 5},
        ),
        (
            Speculation(type="mtp", n_max=2),
            {"method": "mtp", "num_speculative_tokens": 2, "draft_sample_method": "greedy"},
        ),
        (
            Speculation(type="eagle3", draft=Draft(path="/models/head")),
            {
                "method": "eagle3",
                "num_speculative_tokens": 3,
                "model": "/models/head",
                "draft_sample_method": "greedy",
            },
        ),
        (
            Speculation(type="dflash", n_max=16, draft=Draft(path="/models/block"), sampling="probabilistic"),
            {
                "method": "dflash",
                "num_speculative_tokens": 16,
                "model": "/models/block",
                "draft_sample_method": "probabilistic",
            },
        ),
        (
            Speculation(type="mtp", n_max=1, synth_rates=(0.0,)),
            {
                "method": "mtp",
                "num_speculative_tokens": 1,
                "draft_sample_method": "greedy",
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_rates": [0.0],
            },
        ),
    ],
    ids=lambda value: value.type if isinstance(value, Speculation) else "",
)
def test_each_method_becomes_its_speculative_config(speculation: Speculation, config: dict[str, Any]) -> None:
    argv = command(speculation=speculation).argv
    assert json.loads(after(argv, "--speculative-config")) == config
    assert after(argv, "--per-request-spec-decode-metrics") == "summary"


def test_the_arms_differ_in_options_of_the_declared_variable_only() -> None:
    baseline, candidate = command(), command(speculation=Speculation(type="ngram"))
    added = [word for word in candidate.comparable if word.startswith("--") and word not in baseline.comparable]
    assert added and set(added) <= set(named("server.speculation").flags)


def test_program_model_and_port_do_not_make_two_arms_differ() -> None:
    assert (
        command().comparable[:3] == ("vllm", "serve", "<model>") and after(command().comparable, "--port") == "<port>"
    )


def test_a_vllm_that_cannot_tell_more_is_asked_without_and_both_arms_note_it() -> None:
    for speculation in (Speculation(), Speculation(type="ngram")):
        line = command(frozenset(), speculation=speculation)
        assert not set(OPTIONAL) & set(line.argv) and line.omitted == OPTIONAL


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"gpu_layers": "all"}, "server.gpu_layers: has no effect on vLLM"),
        ({"ubatch": 64}, "server.ubatch: has no effect on vLLM"),
        ({"kv_type_k": "fp8"}, "server.kv_type_v: vLLM has one type"),
        ({"extra_args": ("--enable-prefix-caching",)}, "--enable-prefix-caching is set by agent-ab"),
        ({"extra_args": ("--speculative_config={}",)}, "is set by agent-ab"),
        ({"env": {"VLLM_API_KEY": "x"}}, "server.env: VLLM_API_KEY is set by agent-ab"),
        ({"speculation": Speculation(type="draft-mtp")}, "for vLLM it is one of none, ngram, mtp"),
        ({"speculation": Speculation(type="ngram", p_min=0.5)}, "server.speculation.p_min: has no effect"),
        ({"speculation": Speculation(n_max=3)}, "server.speculation.n_max: has no effect on vLLM's method 'none'"),
        ({"speculation": Speculation(type="eagle3")}, "eagle3 drafts with a model of its own"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:30],
)
def test_what_vllm_would_ignore_or_what_would_hide_it_is_refused(server: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        command(**server)


def test_the_environment_is_ours_alone() -> None:
    server = Server(engine="vllm", env={"VLLM_USE_X": "1"})
    theirs = {"VLLM_ATTENTION_BACKEND": "other", "HF_TOKEN": "secret", "CUDA_VISIBLE_DEVICES": "1"}
    env = vllm_command.environment(BINARY, server, Own("key", Path("/tmp/h"), Path("/cache"), 2), theirs)
    assert env["VLLM_USE_X"] == "1" and env["CUDA_VISIBLE_DEVICES"] == "1" and env["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert env["PATH"].startswith("/opt/vllm/bin:") and env["HF_HUB_OFFLINE"] == "1"
    assert "VLLM_ATTENTION_BACKEND" not in env and "HF_TOKEN" not in env
    stored = vllm_command.comparable_environment(env)
    assert "key" not in stored.values() and stored["HOME"] == "<private directory>"
