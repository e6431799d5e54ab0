"""Where the time goes."""

from agent_ab.model import Arm
from agent_ab.report.page.bars import BarRow, wall_split
from agent_ab.report.page.shapes import WIDTH, Box, Words


def test_the_parts_of_a_bar_add_up_to_its_length() -> None:
    plot = wall_split(
        [BarRow("all tasks", Arm.BASELINE, (1, 5, 3, 1)), BarRow("all tasks", Arm.CANDIDATE, (1, 2, 1, 1))]
    )
    assert plot is not None and plot.figures
    boxes = [s for s in plot.shapes if isinstance(s, Box)]
    assert [b.css for b in boxes] == ["prefill", "decode", "tools", "other"] * 2
    longest, shorter = (sum(b.width for b in boxes[i : i + 4]) for i in (0, 4))
    assert abs(longest - 2 * shorter) < 0.01 and boxes[3].x + boxes[3].width < WIDTH
    assert plot.figures.rows[0] == ("all tasks", "baseline", "1.0 s", "5.0 s", "3.0 s", "1.0 s", "10.0 s")
    assert plot.sentence.startswith("Mean of an attempt. Baseline: prefill 1.0 s, decode 5.0 s")


def test_a_long_name_is_cut_and_nothing_is_drawn_of_nothing() -> None:
    plot = wall_split([BarRow("x" * 99, Arm.BASELINE, (1, 1, 1, 1))])
    assert plot is not None
    assert any(isinstance(s, Words) and s.text.endswith("...") for s in plot.shapes)
    assert wall_split([]) is None and wall_split([BarRow("x", Arm.BASELINE, (0, 0, 0, 0))]) is None
