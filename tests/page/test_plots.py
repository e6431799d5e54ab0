"""Each plot says in words and in a table what it draws."""

from agent_ab.model import Arm
from agent_ab.report.page import lines, plots
from agent_ab.report.page.plots import PairPoint
from agent_ab.report.page.shapes import WIDTH, Line, Mark, Plot, Words
from agent_ab.report.summary import summarise
from tests.page.runs import played, verdict_of

POINTS = (
    PairPoint(1, "a seed 1", 100.0, 80.0, (False, False), (10, 10), 10, "same"),
    PairPoint(2, "a seed 2", 480.1, 186.1, (True, False), (10, 1), 10, "broken"),
    PairPoint(3, "b seed 1", None, None, (False, False), (1, 1), 10, "same"),
)


def texts(plot: Plot | None) -> list[str]:
    assert plot is not None
    return [shape.text for shape in plot.shapes if isinstance(shape, Words)]


def marks(plot: Plot | None) -> list[Mark]:
    assert plot is not None
    return [shape for shape in plot.shapes if isinstance(shape, Mark)]


def test_wall_time_draws_a_line_a_pair_and_marks_what_was_cut() -> None:
    plot = plots.wall_times(POINTS)
    assert plot is not None
    drawn = [s for s in plot.shapes if isinstance(s, Line) and s.pair]
    assert [line.pair for line in drawn] == [1, 2] and drawn[1].css == "pair broken"
    assert [m.shape for m in marks(plot) if m.pair == 2] == ["triangle", "circle"]
    assert plot.sentence.startswith("In 2 of 2 pairs the candidate took less time.")
    assert plot.figures and plot.figures.rows[1] == ("2", "a seed 2", "8 min 00 s", "3 min 06 s", "0.39 x")
    assert "10 min" in texts(plot) or "8 min" in texts(plot)


def test_checks_passed_groups_pairs_that_are_alike() -> None:
    plot = plots.checks_passed([*POINTS, POINTS[0]])
    assert plot is not None and plot.figures
    assert set(plot.figures.rows) == {("10", "10", "2"), ("10", "1", "1"), ("1", "1", "1")}
    assert plot.sentence.startswith(
        "The candidate passed fewer checks in 1, more in 0 and equally many in 3 of 4 pairs"
    )


def test_the_time_ratio_shows_every_pair_and_the_mean_with_its_interval() -> None:
    pairs = [played(n, ratio=0.7 + n / 50) for n in range(8)]
    time = verdict_of(pairs).time
    plot = plots.time_ratio(lines.points(lines.numbered(pairs)), time)
    assert plot is not None and time is not None and time.ratio is not None
    assert len([m for m in marks(plot) if m.pair]) == 8
    assert [m.shape for m in marks(plot)].count("diamond") == 1
    assert f"{time.ratio:.2f} x the baseline's time (95 % interval" in plot.sentence
    assert "1 x" in texts(plot)


def test_ratios_far_apart_keep_their_labels_apart() -> None:
    wide = [PairPoint(n, "x", 1.0, r, (False, False), (1, 1), 1, "same") for n, r in enumerate((0.02, 1, 60))]
    assert texts(plots.time_ratio(wide, None))[:7] == ["0.0333 x", "0.1 x", "0.3 x", "1 x", "3 x", "10 x", "30 x"]


def test_the_evidence_is_drawn_from_one_to_now_with_what_decides() -> None:
    verdict = verdict_of([played(n, candidate=1) for n in range(8)])
    plot = plots.evidence_path(verdict.path, verdict.evidence)
    assert plot is not None and verdict.evidence is not None
    assert "20 decides" in texts(plot)
    assert any(text.startswith("harm 67.4") for text in texts(plot))
    assert plot.figures and [row[0] for row in plot.figures.rows] == ["4", "8"]
    assert plots.evidence_path((), verdict.evidence) is None


def test_speed_and_acceptance_have_a_line_an_arm_that_has_them() -> None:
    bins = summarise([played(0)]).lengths
    speed, acceptance = plots.by_length(bins, "speed"), plots.by_length(bins, "acceptance")
    assert speed is not None and acceptance is not None and speed.figures and acceptance.figures
    assert [key[0] for key in speed.keys] == ["baseline", "candidate"]
    assert [key[0] for key in acceptance.keys] == ["candidate"]
    assert acceptance.figures.rows[0][1:] == ("candidate", "1", "70.0 %")
    assert plots.by_length([b for b in bins if b.arm is Arm.BASELINE], "acceptance") is None


def test_nothing_is_drawn_of_nothing() -> None:
    assert plots.wall_times(POINTS[2:]) is None and plots.time_ratio(POINTS[2:], None) is None
    assert plots.checks_passed(()) is None and plots.by_length((), "speed") is None


def test_many_pairs_have_no_table_of_their_own_in_a_plot() -> None:
    many = [PairPoint(n, "x", 1.0, 1.5, (False, False), (1, 1), 1, "same") for n in range(1, 500)]
    plot = plots.wall_times(many)
    assert plot is not None and plot.figures is None


def test_every_shape_lies_within_its_plot() -> None:
    pairs = [played(n, candidate=10 - n % 3, ratio=0.5 + n / 7) for n in range(12)]
    verdict = verdict_of(pairs)
    points = lines.points(lines.numbered(pairs))
    drawn = (
        plots.wall_times(points),
        plots.checks_passed(points),
        plots.time_ratio(points, verdict.time),
        plots.evidence_path(verdict.path, verdict.evidence),
        plots.by_length(summarise(pairs).lengths, "speed"),
    )
    for plot in drawn:
        assert plot is not None
        for shape in plot.shapes:
            places = shape.points if isinstance(shape, Line) else ((shape.x, shape.y),)
            assert all(0 <= x <= WIDTH and 0 <= y <= plot.height for x, y in places), (plot.id, shape)
