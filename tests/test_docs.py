"""The documentation keeps its word: commands, links, names.

Every command of README.md and docs/ is found by doc_commands.py and taken by the real command line: options, profiles,
tasks, methods, files, make targets. What only reads is then run, on recorded runs. What plays, builds, or installs is not
run here: `ELSEWHERE` says why, and which test runs it.
"""

import ast
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from agent_ab.cli.app import COMMANDS
from agent_ab.store.store import Store
from tests.command import ROOT, here
from tests.doc_commands import commands, fault, is_ours, words

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
    "run --profile mine.toml --dry-run": {0},
}
"""What is run here, and how it may end. What stands in neither table fails the tests."""

NAMES = (["import"], ["export"], ["plan"])
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
    "gate --judge-again": (
        "runs hidden checks in the box",
        "live/test_apparatus.py::test_a_run_grows_by_blocks_of_settled_seeds_and_is_judged_with_its_aa_run",
    ),
    "bench": (
        "plays for minutes",
        "live/test_bench_loop.py::test_every_method_shows_its_chosen_acceptance_and_the_baselines_text",
    ),
    "sweep": ("plays", "live/test_arms.py::test_a_budget_is_swept_with_both_arms_alike"),
    "blocks": ("plays", "live/test_arms.py::test_several_candidates_share_one_baseline_attempt_and_each_is_a_run"),
    "lossless": ("loads a model", "live/test_lossless.py::test_a_lossless_method_says_what_the_model_says"),
    "replay": (
        "starts a server",
        "live/test_lossless.py::test_a_pair_whose_candidate_lets_wrong_tokens_through_is_caught_with_the_token",
    ),
    "check": (
        "runs hidden checks in the box",
        "live/test_run.py::test_any_directory_can_be_checked_and_is_left_as_it_is",
    ),
    "task verify": (
        "runs hidden checks in the box",
        "live/test_verify.py::test_a_sound_task_has_no_fault_and_progress_names_every_variant",
    ),
    "regrade": ("runs hidden checks in the box", "test_regrade.py::test_the_command_prints_what_changed"),
    "review": ("asks a person", "test_review.py::test_a_person_steps_through_the_flips"),
    "doctor": ("looks at the machine", "test_doctor.py::test_every_part_of_a_pair_is_examined_and_nothing_is_made"),
    "setup": ("builds llama-server: `make test` begins with it", ""),
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


@pytest.fixture(scope="module")
def place(recorded_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
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
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(made))
        patched.delenv("GITHUB_STEP_SUMMARY", raising=False)
        yield made


def recorded(place: Path) -> dict[str, str]:
    """Return what RUN and PAIR stand for: the recorded known-bad suite and its first pair."""
    store = Store(place / "runs.db")
    try:
        run = next(run.id for run in store.runs() if run.profile == "scripted-known-bad")
    finally:
        store.close()
    return {"RUN": run, "PAIR": f"{run}/transfer-repair-4242-0"}


def entry(command: str) -> str:
    """Return the key of READS or ELSEWHERE under which `command` stands: the one that most of its words are in."""
    said = words(command, {}) if is_ours(command) else command.split()
    said = said if is_ours(command) else [said[0].rpartition("/")[2], *said[1:]]
    first = command.removeprefix("AGENT_AB_LLAMA_SERVER=").split()
    said = ["make"] if not is_ours(command) and "make" in first else said
    fitting = [
        key for key in (*READS, *ELSEWHERE) if key.split()[0] == said[0] and all(word in said for word in key.split())
    ]
    return max(fitting, key=len, default="")


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_every_command_is_one_that_the_command_line_takes(path: Path, place: Path) -> None:
    names = recorded(place)
    found = commands(path.read_text(encoding="utf-8"))
    assert [told for told in (fault(command, place, names) for command in found) if told] == []
    assert [command for command in found if not entry(command)] == [], "stands in neither READS nor ELSEWHERE"


def reading() -> dict[str, list[str]]:
    """Return every command that only reads, once, by its words; and the names in sentences that need no more words."""
    found = {
        command.removeprefix(".venv/bin/"): words(command, {})
        for path in PAGES
        for command in commands(path.read_text(encoding="utf-8"))
        if is_ours(command) and entry(command) in READS
    }
    return {command: said for command, said in found.items() if said not in NAMES}


@pytest.mark.parametrize("command", reading())
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


def test_every_command_is_in_a_table_and_every_named_test_is_there() -> None:
    assert {name for name in COMMANDS if name != "task"} <= {key.split()[0] for key in (*READS, *ELSEWHERE)}
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


def test_the_picture_has_words_and_is_small() -> None:
    (words_of_it, file) = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", PAGES[0].read_text(encoding="utf-8"))[0]
    assert len(words_of_it) > 80
    assert (ROOT / file).stat().st_size < 300_000


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_no_page_names_a_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"/(?:root|work|Users)/\S*|/home/(?!agent\b)\w+|/tmp/[a-z]\S*", text) == []
    assert len(socket.gethostname()) < 5 or socket.gethostname() not in text
