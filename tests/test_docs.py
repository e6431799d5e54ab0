"""The documentation keeps its word: commands, links, names.

Every command of README.md and docs/ is found by doc_commands.py and taken by the real command line: options, profiles,
tasks, methods, files, make targets. What only reads is then run, on recorded runs; what needs a pair whose evidence is
whole, or a server, on a pair that was played for it; of `run` the plan. What plays for longer, builds, or installs is not run
here: `ELSEWHERE` says why, and which test runs it.
"""

import ast
import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import unquote

import pytest

from agent_ab.cli.app import COMMANDS
from agent_ab.config import load_profile
from agent_ab.model import Arm
from agent_ab.store.store import Store
from tests.command import ROOT, agent_ab, here
from tests.doc_commands import commands, fault, is_ours, words
from tests.played import once

VERDICT = ROOT / "docs" / "verdict.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

READS = {
    "gate": {1, 3},
    "report": {0},
    "demo": {0},
    "runs": {0},
    "pairs": {0},
    "show": {0},
    "diff": {0},
    "plan": {0},
    "import": {0},
    "export": {0},
    "bundle": {0},
    "reproduce": {0},
    "task list": {0},
    "task show": {0},
    "doctor": {0, 4},
    "review --list": {0},
    "run --profile mine.toml --dry-run": {0},
}
"""What is run here, and how it may end. What stands in no table fails the tests."""

PLAYED = {
    "check": {0},
    "gate --judge-again": {3},
    "lossless PAIR": {1},
    "regrade": {0},
    "replay": {0},
    "review --pair": {0},
    "setup": {0},
}
"""What is run here on a pair of scripted-known-bad, and how it ends."""

NAMES = (["import"], ["export"], ["plan"], ["replay"], ["check"])
"""Commands that need more words: alone they are names in a sentence."""

ELSEWHERE = {
    "pair": (
        "plays a pair",
        "live/test_pair.py::test_the_known_bad_candidate_breaks_nine_checks_and_the_pair_stays_valid",
    ),
    "run": ("plays a suite", "live/test_suite.py::test_a_suite_stops_at_a_blocks_end_and_the_same_command_goes_on"),
    "run --extend": (
        "plays for hours",
        "live/test_extending.py::test_a_known_bad_candidate_is_played_until_it_is_rejected",
    ),
    "aa": (
        "plays",
        "live/test_apparatus.py::test_a_run_grows_by_blocks_of_settled_seeds_and_is_judged_with_its_aa_run",
    ),
    "controls": ("plays", "live/test_apparatus.py::test_the_known_bad_is_rejected_and_the_placebo_is_not"),
    "bench": (
        "plays for minutes",
        "live/test_bench_loop.py::test_every_method_shows_its_chosen_acceptance_and_the_baselines_text",
    ),
    "sweep": ("plays", "live/test_arms.py::test_a_budget_is_swept_with_both_arms_alike"),
    "blocks": ("plays", "live/test_arms.py::test_several_candidates_share_one_baseline_attempt_and_each_is_a_run"),
    "lossless": ("loads a model", "live/test_lossless.py::test_a_lossless_method_says_what_the_model_says"),
    "task verify": (
        "runs hidden checks in the box",
        "live/test_verify.py::test_a_sound_task_has_no_fault_and_progress_names_every_variant",
    ),
    "review": ("asks a person", "test_review.py::test_a_person_steps_through_the_flips"),
    "make": ("each target is dry-run, and what it calls is parsed", ""),
    "pip": ("installs", ""),
    "apt": ("installs", ""),
    "cp": ("the reader's own files", ""),
    "sudo": ("changes the machine", ""),
    "inspect": (
        "a program of others; reading such a log",
        "live/test_inspect.py::test_inspect_reads_every_sample_score_and_message",
    ),
    "python benchmarks/simulation.py": ("hours of simulation", "test_simulation.py::"),
}
"""What is not run here: why, and by which test else."""

TABLES = (*READS, *PLAYED, *ELSEWHERE)


@pytest.fixture(scope="module")
def laid(recorded_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the recorded runs and the files that a reader of the documentation has made."""
    made = tmp_path_factory.mktemp("reader")
    shutil.copy(recorded_runs / "runs.db", made)
    shutil.copytree(recorded_runs / "runs", made / "runs")
    for folder in ("base", "profiles"):
        (made / folder).mkdir()
    for policy in ("gate.toml", "base/gate.toml"):
        shutil.copy(ROOT / "agent_ab" / "data" / "gate.toml", made / policy)
    for profile in ("mine.toml", "profiles/candidate.toml"):
        shutil.copy(ROOT / "profiles" / "rtx3090-qwen3.8-27b-mtp.toml", made / profile)
    example = re.search(r"^ {4}task,seed,arm,.*\n(?: {4}.*\n)+", VERDICT.read_text(encoding="utf-8"), re.MULTILINE)
    assert example
    (made / "results.csv").write_text(example[0].replace("    ", ""), encoding="utf-8")
    return made


@pytest.fixture
def place(laid: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return that directory; commands leave their temporary files in it, too."""
    monkeypatch.setattr(tempfile, "tempdir", str(laid))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    return laid


def recorded(place: Path) -> dict[str, str]:
    """Return what RUN and PAIR stand for: the recorded known-bad suite and its first pair."""
    store = Store(place / "runs.db")
    try:
        run = next(run.id for run in store.runs() if run.profile == "scripted-known-bad")
    finally:
        store.close()
    return {"RUN": run, "PAIR": f"{run}/transfer-repair-4242-0"}


def entry(command: str) -> str:
    """Return the key of the tables under which `command` stands: the one that most of its words are in."""
    said = words(command, {}) if is_ours(command) else command.split()
    said = said if is_ours(command) else [said[0].rpartition("/")[2], *said[1:]]
    first = command.removeprefix("AGENT_AB_LLAMA_SERVER=").split()
    said = ["make"] if not is_ours(command) and "make" in first else said
    fitting = [key for key in TABLES if key.split()[0] == said[0] and all(word in said for word in key.split())]
    return max(fitting, key=len, default="")


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_every_command_is_one_that_the_command_line_takes(path: Path, place: Path) -> None:
    names = recorded(place)
    found = commands(path.read_text(encoding="utf-8"))
    assert [told for told in (fault(command, place, names) for command in found) if told] == []
    assert [command for command in found if not entry(command)] == [], "stands in no table"


def given(*keys: str) -> dict[str, list[str]]:
    """Return every command of `keys`, once, by its words; not the names in sentences that need more words."""
    found = {
        command.removeprefix(".venv/bin/"): words(command, {})
        for path in PAGES
        for command in commands(path.read_text(encoding="utf-8"))
        if is_ours(command) and entry(command) in keys
    }
    return {command: said for command, said in found.items() if said not in NAMES}


@pytest.mark.parametrize("command", given(*READS))
def test_a_command_that_only_reads_works(command: str, place: Path) -> None:
    said, bundle = words(command, recorded(place)), place / "run.zip"
    if "--verify" in said:
        # The digest on the page is that of another run.
        bundle.unlink(missing_ok=True)
        digest = here(place, "bundle", "--out", bundle, "--json").data["digest"]
        said = [digest if word.endswith("...") else word for word in said]
    elif said[0] == "bundle":
        bundle.unlink(missing_ok=True)
    if said[:1] == ["gate"] and "--db" in said:
        here(place, "import", "results.csv", "--db", said[-1])
    done = here(place, *said)
    assert done.status in READS[entry(command)], done.stderr
    assert done.stdout


@pytest.mark.parametrize("command", given("run", "run --extend"))
def test_a_run_that_is_not_played_here_can_be_planned(command: str, place: Path) -> None:
    done = here(place, *words(command, recorded(place)), "--dry-run")
    assert done.status == 0 and "pairs" in done.stdout, done.stderr


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the pair of scripted-known-bad, laid out as the pages name things."""
    made = once(tmp_path_factory, "scripted-known-bad").copied(tmp_path_factory.mktemp("reader"))
    shutil.copy(ROOT / "agent_ab" / "data" / "gate.toml", made)
    (made / "uploaded").mkdir()
    (made / "uploaded" / "runs").symlink_to(made / "runs")
    for name in (".venv", "Makefile"):
        (made / name).symlink_to(ROOT / name)
    return made


@pytest.mark.live
@pytest.mark.parametrize("command", given(*PLAYED))
def test_a_command_that_needs_a_played_pair_works(command: str, played: Path) -> None:
    pair = here(played, "pairs", "--json").data[0]["name"]
    names = {"PAIR": pair, "RUN": pair.partition("/")[0]}
    if command.startswith("agent-ab check"):
        names["DIR"] = str(ROOT / "tasks" / "transfer-repair" / "fixture")
    done = agent_ab(played, *words(command, names))
    assert done.status in PLAYED[entry(command)], done.stdout + done.stderr
    assert done.stdout


@pytest.mark.live
def test_a_reader_of_the_readme_reaches_the_report_of_the_first_pair(played: Path) -> None:
    pair = here(played, "pairs", "--json").data[0]["name"]
    if not (ROOT / ".venv" / "bin" / "agent-ab").exists():
        pytest.skip("no make target has made .venv")
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "ARGS")}

    def make(target: str) -> int:
        return subprocess.run(["make", "-o", ".venv/.run", target], cwd=played, env=env, check=False).returncode

    assert make("report") == 0
    page = (played / "report.html").read_text(encoding="utf-8")
    assert pair.partition("/")[0] in page and "scripted-known-bad" in page
    assert "BROKEN   9 checks flipped" in here(played, "show").stdout
    assert pair in here(played, "diff").stdout
    assert (here(played, "gate").status, make("gate")) == (3, 2)


def test_every_command_is_in_a_table_and_every_named_test_is_there() -> None:
    assert {name for name in COMMANDS if name != "task"} <= {key.split()[0] for key in TABLES}
    for _reason, test in ELSEWHERE.values():
        if test:
            file, _, name = test.partition("::")
            defined = ast.walk(ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8")))
            assert not name or name in {node.name for node in defined if isinstance(node, ast.FunctionDef)}, test


@pytest.mark.parametrize(
    ("text", "said"),
    (
        ("    agent-ab gaet\n", "no command gaet"),
        ("Call `agent-ab gate --polcy gate.toml`.\n", "No such option: --polcy"),
        ("Call `agent-ab run\n--extnd` at night.\n", "No such option: --extnd"),
        ("```sh\nagent-ab pair --task transfer-repair --profile rtx4090\n```\n", "no profile 'rtx4090'"),
        ("    agent-ab pair --task repair-transfer\n", "no task 'repair-transfer'"),
        ("    agent-ab bench --methods none,mpt-2\n", "no method 'mpt-2'"),
        ("    agent-ab run --policy none.toml\n", "none.toml"),
        ("    make piar\n", "piar"),
        ("    make pair TSK=transfer-repair\n", "asks for no TSK"),
        ("    make pair PROFILE=rtx4090\n", "no profile 'rtx4090'"),
        ("    make pair TASK=transfer-repair ARGS=--jsno\n", "No such option: --jsno"),
        ("Install it: `pip install -e '.[gpus]'`.\n", "no extra gpus"),
        ("    AGENT_AB_LAMA=x agent-ab doctor\n", "no variable AGENT_AB_LAMA"),
        ("    python scripts/no_such.py\n", "no_such.py"),
        ("```yaml\n    steps:\n      - run: .venv/bin/agent-ab gate --jnit gate.xml\n```\n", "No such option: --jnit"),
    ),
)
def test_a_wrong_command_is_found(text: str, said: str, tmp_path: Path) -> None:
    (command,) = commands(text)
    assert said in fault(command, tmp_path, {})


def test_commands_are_found_wherever_they_stand_and_words_are_not() -> None:
    text = (
        "# `agent-ab diff`\n\n"
        "Use `agent-ab show\nPAIR` or `agent_ab`, not `ls`.\n\n"
        "    agent-ab import a.csv --db p.db && agent-ab gate --db p.db   # both\n"
        "    agent-ab export --json > run.json            one document\n"
        "    wall time               3.7 s\n\n"
        "```toml\nagent-ab = 1\n```\n| `agent-ab gate || [ $? -eq 3 ]` |\n"
    )
    assert sorted(commands(text)) == [
        "agent-ab diff",
        "agent-ab export --json",
        "agent-ab gate",
        "agent-ab gate --db p.db",
        "agent-ab import a.csv --db p.db",
        "agent-ab show PAIR",
    ]


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_every_link_leads_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_every_file_of_ours_that_is_named_is_there(path: Path) -> None:
    named = re.findall(r"`((?:agent_ab|tests|scripts|benchmarks|profiles|tasks)/[\w./-]+)`", path.read_text("utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_is_linked_from_the_readme() -> None:
    readme = PAGES[0].read_text(encoding="utf-8")
    assert [p.name for p in (ROOT / "docs").glob("*.md") if f"(docs/{p.name})" not in readme] == []


def test_every_profile_has_its_line() -> None:
    listed = re.findall(r"^\| `([\w.-]+)`", (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(path.stem for path in (ROOT / "profiles").glob("*.toml"))


def test_every_command_has_its_exit_statuses_and_what_is_run_here_keeps_them() -> None:
    text = (ROOT / "docs" / "exit-statuses.md").read_text(encoding="utf-8")
    _, _, text = text.partition("| command | 0 | 1 | 3 | 4 |")
    rows = re.findall(r"^\| (`.*?) \|(.*?)\|(.*?)\|(.*?)\|(.*?)\|$", text, re.MULTILINE)
    told = {
        command: {status for status, cell in zip((0, 1, 3, 4), cells, strict=True) if cell.strip()}
        for names, *cells in rows
        for command in re.findall(r"`([^`]+)`", names)
    }
    of_tasks = {f"task {name}" for name in ("list", "show", "verify")}
    assert set(told) == {name for name in COMMANDS if name != "task"} | of_tasks
    for key, statuses in (READS | PLAYED).items():
        (row,) = [told[name] for name in told if key == name or key.startswith(f"{name} ")]
        assert statuses <= row, key


def test_the_first_screen_is_what_its_first_command_prints() -> None:
    """Names only: to play the pair takes minutes."""
    readme = PAGES[0].read_text(encoding="utf-8")
    first, shown = readme.split("\n    make ", 2)[1:]
    assert shown.startswith("test\n") and first.startswith("pair TASK=transfer-repair SEED=4242\n")
    assert "transfer-repair  seed 4242  repeat 0  baseline first" in first
    profile = load_profile("cpu-demo", ROOT / "profiles")
    assert f"--spec-draft-n-max {profile.arm(Arm.CANDIDATE).server.speculation.n_max}\n" in first
    judge = (ROOT / "tasks" / "transfer-repair" / "checks.py").read_text(encoding="utf-8")
    ids = set(re.findall(r'^@check\(\s*"([\w-]+)"', judge, re.MULTILINE))
    assert set(re.findall(r"^ {4}([a-z-]+) +(?:pass|fail) +(?:pass|fail)$", first, re.MULTILINE)) <= ids
    assert readme.count("\n") <= 150


def test_the_picture_has_words_and_is_small() -> None:
    (words_of_it, file) = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", PAGES[0].read_text(encoding="utf-8"))[0]
    assert len(words_of_it) > 80
    assert (ROOT / file).stat().st_size < 300_000


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_no_page_names_a_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"/(?:root|work|Users)/\S*|/home/(?!agent\b)\w+|/tmp/[a-z]\S*", text) == []
    assert len(socket.gethostname()) < 5 or socket.gethostname() not in text
