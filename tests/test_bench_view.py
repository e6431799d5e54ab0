"""The tables of a bench, and what keeps a reader from believing too much."""

from dataclasses import replace
from io import StringIO

from rich.console import Console

from agent_ab.bench.plot import plot
from agent_ab.bench.stats import ALL, Interval
from agent_ab.bench.view import about, agreement, data, notes, percent, seconds, spread, view
from tests.bench_results import result


def text(rounds: int = 9) -> str:
    console = Console(width=100, file=StringIO(), record=True)
    console.print(view(result(rounds), "runs/bench-1"))
    return console.export_text()


def test_every_method_has_its_line_and_one_that_was_not_applied_has_no_number() -> None:
    lines = {line.split()[0]: line for line in reversed(text().splitlines()) if line.strip()}
    assert "1.30 [1.30–1.30]" in lines["mtp-2"]
    assert "18 of 18 equal" in lines["mtp-2"]
    assert lines["misfit"].split() == ["misfit", "not", "applied"]
    assert "misfit: not applied: the draft does not fit" in text()
    assert all(len(line) <= 100 for line in text().splitlines())


def test_acceptance_is_shown_beside_what_was_worked_out() -> None:
    assert "all             chosen  worked out" in text()
    assert "70.0 % of 1080  70.0 %  70.0 %" in text()
    assert "90 %  70 %  50 %" in text()


def test_each_class_has_what_its_user_waits_for() -> None:
    table = text().split("medians by class of request")[1]
    code, prose = table.index("code "), table.index("prose ")
    assert code < prose
    for part in (table[code:prose], table[prose:]):
        line = next(line for line in part.splitlines() if "mtp-2" in line)
        assert line.split()[-7:] == ["mtp-2", "5000.0", "135.2", "20", "ms", "385", "ms"]


def test_one_round_has_no_intervals_and_says_so() -> None:
    assert "one round: the numbers have no intervals" in text(1)
    assert "[" not in text(1)


def test_an_interval_that_is_too_wide_is_told() -> None:
    found = result()
    slow = [
        replace(r, predicted_ms=r.predicted_ms * (1 + r.round)) if r.method == "mtp-2" else r for r in found.replies
    ]
    assert any("mtp-2: its ratio is known to" in line for line in notes(replace(found, replies=tuple(slow))))
    assert not any("known to" in line for line in notes(found))


def test_a_method_that_found_nothing_to_draft_was_applied_all_the_same() -> None:
    found = result()
    quiet = tuple(replace(r, drafting=None) for r in found.replies)
    assert "mtp-2: applied, but it found nothing to draft in these requests" in notes(replace(found, replies=quiet))


def test_an_earlier_bench_agrees_or_differs() -> None:
    rows = result().rows
    assert all("agrees with" in line for line in agreement(rows, rows))
    faster = Interval(3.0, 2.9, 3.1, 0.96, 9)
    before = [replace(row, decode_ratio=faster) if row.method == "mtp-2" and row.kind == ALL else row for row in rows]
    assert [line.split()[:2] for line in agreement(rows, before) if "DIFFERS" in line] == [["mtp-2:", "1.30"]]


def test_a_ratio_that_is_hardly_known_neither_agrees_nor_differs() -> None:
    rows = result().rows

    def against(old: Interval, new: Interval | None = None) -> str:
        before = [replace(row, decode_ratio=old) for row in rows]
        after = [replace(row, decode_ratio=new) for row in rows] if new else rows
        return next(line for line in agreement(after, before) if line.startswith("mtp-2"))

    sharp, wide = Interval(1.3, 1.29, 1.31, 0.96, 9), Interval(1.3, 1.0, 1.6, 0.96, 9)
    single, five = Interval(1.3, 1.3, 1.3, 0.0, 1), Interval(1.3, 1.2, 1.4, 0.9375, 5)
    assert "agrees with" in against(sharp, sharp)
    assert against(wide).endswith("too imprecise to tell: the earlier bench knows its ratio to 23% only")
    assert against(sharp, wide).endswith("too imprecise to tell: this bench knows its ratio to 23% only")
    assert "too imprecise to tell: the earlier bench has one round" in against(single)
    assert "too imprecise to tell: this bench has one round" in against(sharp, single)
    assert "too imprecise" in against(replace(single, median=9.0, low=9.0, high=9.0))
    assert "too imprecise to tell: the earlier bench has 5 rounds" in against(five)
    assert "DIFFERS from" in against(Interval(9.0, 7.0, 11.0, 0.96, 9))


def test_a_number_of_a_method_that_drafted_nothing_in_its_class_is_marked() -> None:
    found = result()
    quiet = tuple(replace(r, drafting=None) if r.method == "mtp-2" and r.kind == "code" else r for r in found.replies)
    console = Console(width=100, file=StringIO(), record=True)
    console.print(view(replace(found, replies=quiet), "runs/bench-1"))
    said = console.export_text()
    assert "1.30 ±0 %°" in said and "135.2°" in said and said.count("° drafted nothing there") == 2
    assert said.count("°") == 4 and "°" not in text()


def test_a_bench_without_any_method_that_applies_has_no_number_and_says_so() -> None:
    found = result(0)
    out = {n: replace(s, not_applied="" if n == "none" else "it does not fit") for n, s in found.standings.items()}
    nothing = replace(found, standings=out)
    console = Console(width=100, file=StringIO(), record=True)
    console.print(view(nothing, "runs/bench-1"))
    said = console.export_text()
    assert "0 rounds of 0: no method is left to compare" in said and "by class" not in said
    assert "svg" in plot(nothing.rows, "nothing", ["mtp-2"])
    assert data(nothing)["rows"][0]["decode"] is None


def test_the_data_hold_every_number() -> None:
    found = data(result())
    assert [row["method"] for row in found["rows"] if row["class"] == "all"] == ["none", "mtp-2", "eagle3"]
    assert found["methods"]["misfit"]["applied"] is False
    assert found["methods"]["eagle3"]["expected_acceptance"] == 0.7
    chosen = {name: method["chosen_acceptance"] for name, method in found["methods"].items()}
    assert chosen == {"none": None, "mtp-2": None, "eagle3": 0.7, "misfit": None}


def test_numbers_are_written_with_as_much_as_they_say() -> None:
    wide = Interval(0.5, 0.4, 0.7, 0.96, 9)
    assert (spread(wide, "{:.1f}"), about(wide), seconds(wide)) == ("0.5 [0.4–0.7]", "0.50 ±40 %", "500 [400–700] ms")
    assert (spread(None, "{}"), about(None), seconds(None), percent(None)) == ("–", "–", "–", "–")
    assert (percent(0.071), percent(0.71)) == ("7.1 %", "71 %")
