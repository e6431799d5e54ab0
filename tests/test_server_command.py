"""The command line and environment of a server: complete, comparable, and nothing inherited."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from agent_ab.config import ArmSettings, Sampling, Server, Speculation
from agent_ab.engine.engine import Engine
from agent_ab.errors import ApparatusError, UserError
from agent_ab.models.models import DraftModel, Model
from agent_ab.server.command import Command, command, comparable_environment, environment, refuse_system_config

MODEL = Model(Path("/models/m.gguf"), "m" * 64, "qwen35", True, "", 131072)
FLAGS = (
    "-c -np -ngl --fit -t -tb -b -ub -fa -ctk -ctv --no-cache-prompt --no-context-shift --no-cache-idle-slots --cache-ram"
    " --ctx-checkpoints --cache-reuse --slot-prompt-similarity --seed --samplers --temp --top-p --top-k --min-p"
    " --repeat-penalty --repeat-last-n --presence-penalty --frequency-penalty --xtc-probability --mirostat --typical --top-nsigma --dynatemp-range"
    " --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --offline"
    " --no-ui --jinja --metrics --slots -lv --log-colors --alias --chat-template-file --reasoning-budget --spec-type"
    " --spec-draft-n-max --spec-draft-n-min --spec-draft-p-min --spec-draft-sampling --spec-draft-type-k"
    " --spec-draft-type-v --spec-synth-rates"
)
ENGINE = Engine(Path("/opt/llama-server"), "e" * 64, "b7-abc", frozenset(FLAGS.split()), ("none", "draft-mtp"), "PATH")


def made(server: Server, engine: Engine = ENGINE, **settings: object) -> Command:
    arm = ArmSettings.model_validate({"server": server, **settings})
    return command(engine, arm, MODEL, 18080)


def pairs(argv: tuple[str, ...]) -> dict[str, str]:
    return dict(pairwise(argv))


def without(*flags: str) -> Engine:
    return Engine(ENGINE.binary, ENGINE.sha256, ENGINE.build, ENGINE.flags - set(flags), ENGINE.spec_types, "PATH")


def test_every_setting_is_said_aloud() -> None:
    line = made(
        Server(
            context=4096, gpu_layers="all", threads=6, kv_type_k="q8_0", flash_attention="off", batch=256, ubatch=128
        ),
        sampling=Sampling(temperature=0.7, top_k=40),
    )
    said = pairs(line.argv)
    wanted = {"-c": "4096", "-np": "1", "-ngl": "all", "--fit": "off", "-t": "6", "-tb": "6", "-b": "256", "-ub": "128"}
    wanted |= {"-fa": "off", "-ctk": "q8_0", "-ctv": "f16", "--cache-ram": "0", "--ctx-checkpoints": "0"}
    wanted |= {
        "--slot-prompt-similarity": "0",
        "--cache-reuse": "0",
        "--temp": "0.7",
        "--top-k": "40",
        "--top-p": "0.95",
    }
    wanted |= {"--min-p": "0.0", "--repeat-penalty": "1.0", "--seed": "0", "-lv": "4", "--alias": "local"}
    wanted |= {"--host": "127.0.0.1", "--port": "18080", "--model": "/models/m.gguf", "--spec-type": "none"}
    assert said | wanted == said
    assert {
        "--no-cache-prompt",
        "--no-context-shift",
        "--offline",
        "--no-ui",
        "--jinja",
        "--metrics",
        "--slots",
    } <= set(line.argv)
    assert line.omitted == ()


def test_the_baseline_has_no_draft_option_even_when_the_shared_settings_hold_some() -> None:
    line = made(Server(speculation=Speculation(type="none", n_max=3, synth_rates=(0, 0, 0))))
    assert line.argv.count("--spec-type") == 1 and pairs(line.argv)["--spec-type"] == "none"
    assert not [word for word in line.argv if word.startswith(("--spec-draft", "--spec-synth"))]


def test_a_drafting_candidate_says_all_its_draft_options() -> None:
    line = made(Server(speculation=Speculation(type="draft-mtp", n_max=2, kv_type_k="q8_0", synth_rates=(1, 0.5))))
    assert line.argv[-16:] == (
        *("--spec-type", "draft-mtp", "--spec-draft-n-max", "2", "--spec-draft-n-min", "0", "--spec-draft-p-min", "0.0"),
        *("--spec-draft-sampling", "greedy", "--spec-draft-type-k", "q8_0", "--spec-draft-type-v", "f16"),
        *("--spec-synth-rates", "1.0,0.5"),
    )  # fmt: skip


def test_an_n_gram_candidate_gets_no_draft_options() -> None:
    line = made(Server(speculation=Speculation(type="ngram-mod")))
    assert line.argv[-2:] == ("--spec-type", "ngram-mod")


def test_what_the_build_lacks_is_left_out_and_noted_the_same_in_both_arms() -> None:
    old = without("--fit", "--spec-draft-sampling", "--no-ui", "--spec-synth-rates")
    lines = [made(Server(speculation=Speculation(type=kind)), old) for kind in ("none", "draft-mtp")]
    for line in lines:
        assert not {"--fit", "--no-ui", "--spec-draft-sampling"} & set(line.argv)
        assert set(line.omitted) == {"--fit", "--no-webui", "--spec-draft-sampling", "--spec-synth-rates"}


def test_the_arms_differ_in_the_declared_speculation_only() -> None:
    baseline, candidate = (
        made(Server(speculation=Speculation(type=kind))).comparable for kind in ("none", "draft-mtp")
    )
    cut = baseline.index("--spec-type")
    assert baseline[:cut] == candidate[:cut] and baseline[cut:] == ("--spec-type", "none")


def test_a_comparable_command_line_hides_what_may_differ_between_attempts() -> None:
    arm = ArmSettings()
    other = Model(Path("/tmp/other/m.gguf"), "m" * 64, "qwen35", True, "", 131072)
    assert command(ENGINE, arm, MODEL, 1).comparable == command(ENGINE, arm, other, 2).comparable
    assert command(ENGINE, arm, MODEL, 1).comparable[:7] == (
        *("llama-server", "--model", "<model>", "--host", "127.0.0.1", "--port", "<port>"),
    )  # fmt: skip


def test_optional_settings_appear_when_set() -> None:
    line = made(Server(chat_template_file="templates/t.jinja", reasoning_budget=0, extra_args=("--no-warmup",)))
    said = pairs(line.argv)
    assert said["--chat-template-file"] == str(Path("templates/t.jinja").absolute())
    assert said["--reasoning-budget"] == "0" and line.argv[-1] == "--no-warmup"


@pytest.mark.parametrize("word", ["--spec-type", "--port", "--api-key=x", "-lv", "-m"])
def test_extra_arguments_cannot_undo_the_proof(word: str) -> None:
    with pytest.raises(UserError, match=r"server\.extra_args: .* is set by agent-ab"):
        made(Server(extra_args=(word, "x")))


def test_the_environment_holds_nothing_of_ours_but_the_gpu_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LLAMA_ARG_SPEC_TYPE", "LLAMA_ARG_CTX_SIZE", "LD_LIBRARY_PATH", "HTTP_PROXY", "GGML_CUDA_FORCE_MMQ"):
        monkeypatch.setenv(name, "x")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    env = environment(ENGINE, "secret", Path("/private"))
    assert set(env) == {"PATH", "HOME", "XDG_CONFIG_HOME", "LANG", "TZ", "OMP_WAIT_POLICY", "LLAMA_API_KEY"}
    assert env["HOME"] == env["XDG_CONFIG_HOME"] == "/private" and env["LLAMA_API_KEY"] == "secret"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert environment(ENGINE, "secret", Path("/private"))["CUDA_VISIBLE_DEVICES"] == ""


def test_the_stored_environment_has_no_secret_and_compares_equal_between_attempts() -> None:
    one, two = (comparable_environment(environment(ENGINE, key, Path(f"/tmp/{key}"))) for key in ("k1", "k2"))
    assert one == two and "k1" not in str(one) and one["LLAMA_API_KEY"] == "<key>"


def test_a_library_path_that_the_probe_found_needed_is_passed_on() -> None:
    needs = Engine(ENGINE.binary, "", "", frozenset(), (), "PATH", library_path="/opt/cuda/lib")
    assert environment(needs, "k", Path("/p"))["LD_LIBRARY_PATH"] == "/opt/cuda/lib"


def test_a_system_wide_configuration_is_refused(tmp_path: Path) -> None:
    refuse_system_config(tmp_path / "config.ini")
    (tmp_path / "config.ini").write_text("spec-type = draft-mtp\n")
    with pytest.raises(ApparatusError, match="applied before the command line; move it away"):
        refuse_system_config(tmp_path / "config.ini")


NGRAM_FLAGS = {"--spec-ngram-mod-n-match", "--spec-ngram-mod-n-min", "--spec-ngram-mod-n-max"}


def test_an_ngram_type_says_its_lengths_aloud_and_the_build_that_lacks_them_drifts_in_nothing() -> None:
    knows = Engine(ENGINE.binary, "", "", ENGINE.flags | NGRAM_FLAGS, ENGINE.spec_types, "PATH")
    speculation = Speculation(type="ngram-mod", ngram_match=16)
    said = pairs(made(Server(speculation=speculation), knows).argv)
    assert [said[flag] for flag in sorted(NGRAM_FLAGS)] == ["16", "64", "48"]
    lacks, none = made(Server(speculation=speculation)), made(Server())
    assert not NGRAM_FLAGS & set(lacks.argv) and lacks.omitted == none.omitted


def test_a_draft_model_is_named_and_hidden_where_command_lines_are_compared() -> None:
    flags = ENGINE.flags | {"--spec-draft-model", "--spec-draft-ngl"}
    knows = Engine(ENGINE.binary, "", "", flags, ENGINE.spec_types, "PATH")
    drafted = replace(MODEL, draft=DraftModel(Path("/drafts/d.gguf"), "d" * 64, "eagle3"))
    line = command(knows, ArmSettings(server=Server(speculation=Speculation(type="draft-eagle3"))), drafted, 1)
    assert pairs(line.argv)["--spec-draft-model"] == "/drafts/d.gguf"
    assert pairs(line.argv)["--spec-draft-ngl"] == "all"
    assert pairs(line.comparable)["--spec-draft-model"] == "<draft>"
    baseline = command(knows, ArmSettings(), drafted, 1)
    assert "--spec-draft-model" not in baseline.argv
