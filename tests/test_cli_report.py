"""`report` and `demo`, as a user has them."""

from pathlib import Path

from tests.command import agent_ab, here


def test_demo_imports_the_published_numbers_and_prints_where_their_page_is(tmp_path: Path) -> None:
    done = agent_ab(tmp_path, "demo", env={"TMPDIR": str(tmp_path)})
    assert done.status == 0, done.stderr
    assert done.stdout.startswith("INCONCLUSIVE   UNPROVEN: 8 of 8 pairs")
    page = Path(next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("page ")))
    text = page.read_text(encoding="utf-8")
    assert ">imported</span>" in text and ">UNPROVEN</span>" in text and "NVIDIA RTX 3090, 24 GB" in text
    assert "UNPROVEN and never lead to ADOPT" in done.stderr.replace("\n", " ")
    again = next(line for line in done.stdout.splitlines() if line.startswith("terminal "))
    shown = here(tmp_path, *again.split()[2:])
    assert shown.status == 0 and "imported, UNPROVEN" in shown.stdout


def test_a_run_is_data_too(recorded_runs: Path, tmp_path: Path) -> None:
    db = ["--db", recorded_runs / "runs.db", "--runs-dir", recorded_runs / "runs"]
    done = here(tmp_path, "report", "--json", "--csv", "tables", "--html", "report.html", *db)
    assert done.status == 0 and done.data["verdict"]["verdict"] == "INCONCLUSIVE" and len(done.data["pairs"]) == 8
    assert done.stderr.splitlines()[-1] == "report.html"
    assert (tmp_path / "tables" / "pairs.csv").is_file() and (tmp_path / "report.html").is_file()


def test_mistakes_are_told_in_one_line(recorded_runs: Path, tmp_path: Path) -> None:
    db = ["--db", recorded_runs / "runs.db"]
    for words, said in (
        (["report", "nothing", *db], "no run 'nothing'"),
        (["report", *db, "--html", "no/such/place.html"], "--html no/such/place.html: its directory does not exist"),
        (["report", *db, "--markdown", "--json"], "standard output holds one of them"),
    ):
        done = here(tmp_path, *words)
        assert (done.status, done.stdout) == (2, "") and said in done.error
    assert list(tmp_path.iterdir()) == []
