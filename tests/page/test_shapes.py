"""Places, ticks and labels."""

import pytest

from agent_ab.report.page.shapes import Line, Mark, Scale, linear_ticks, log_ticks, spread, time_unit


def test_a_scale_maps_its_ends_and_keeps_the_rest_inside() -> None:
    scale = Scale(0, 10, 100, 0)
    assert (scale.at(0), scale.at(10), scale.at(5), scale.at(99), scale.at(-3)) == (100, 0, 50, 0, 100)
    assert Scale(1, 100, 0, 10, logarithmic=True).at(10) == pytest.approx(5)
    assert Scale(3, 3, 0, 10).at(3) == 5


@pytest.mark.parametrize("high", [0.003, 1, 7.3, 10, 99, 431.2, 1e6])
def test_linear_ticks_are_round_and_reach_the_top(high: float) -> None:
    ticks = linear_ticks(high)
    assert ticks[0] == 0 and ticks[-1] >= high * 0.999 and 3 <= len(ticks) <= 7
    assert linear_ticks(0) == (0.0, 1.0)


@pytest.mark.parametrize(("low", "high"), [(1.6, 120), (2.2, 2.2), (0.8, 480), (3, 3.1), (1e-3, 1e5), (153.5, 480.1)])
def test_log_ticks_enclose_what_is_shown(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    assert ticks[0] <= low * 1.001 and ticks[-1] >= high * 0.999 and 2 <= len(ticks) <= 7
    assert list(ticks) == sorted(set(ticks))


def test_labels_are_moved_apart_and_stay_inside() -> None:
    assert spread([10, 11, 50], 14, 0, 100) == (10, 24, 50)
    assert spread([99, 100], 14, 0, 100) == (86, 100)
    assert spread([50, 20], 14, 0, 100) == (50, 20)


def test_shapes_give_their_points_as_svg_wants_them() -> None:
    assert Line(((1, 2), (3.14159, 4)), "x").path == "1.0,2.0 3.1,4.0"
    assert Mark(10, 10, "x", "square", 2).path == "8.0,8.0 12.0,8.0 12.0,12.0 8.0,12.0"


def test_the_unit_of_time_fits_the_axis() -> None:
    assert [time_unit(most).label(most) for most in (100, 480, 7200)] == ["100 s", "8 min", "2 h"]
