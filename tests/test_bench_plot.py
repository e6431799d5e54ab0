"""The plot of a bench: well-formed, every method and class in it, nothing outside of it."""

import re
from itertools import pairwise
from xml.etree import ElementTree

from agent_ab.bench.plot import WIDTH, plot
from tests.bench_results import result

SVG = "{http://www.w3.org/2000/svg}"


def drawn() -> ElementTree.Element:
    return ElementTree.fromstring(plot(result().rows, "cpu & co <demo>", ["misfit"]))


def words() -> list[str]:
    return [node.text or "" for node in drawn().iter(f"{SVG}text")]


def test_every_method_and_class_is_named() -> None:
    assert {"mtp-2", "eagle3", "misfit", "not applied", "all requests", "code", "prose", "1×"} <= set(words())
    assert "cpu & co <demo>" in words()
    assert any(line.startswith("baseline none: 104.0 tok/s; dots: medians of 9 rounds") for line in words())


def test_every_ratio_is_a_dot_on_its_bar_within_the_picture() -> None:
    root = drawn()
    titles = [node.text or "" for node in root.iter(f"{SVG}title")]
    assert titles.count("all: 1.30× [1.30–1.30]") == 1 and len(titles) == 6
    xs = [float(circle.attrib["cx"]) for circle in root.iter(f"{SVG}circle")]
    assert all(0 < x < WIDTH for x in xs)


def test_the_axis_labels_keep_apart() -> None:
    labels = re.findall(r"<text x='([\d.]+)' y='[\d.]+'[^>]*text-anchor='middle'", plot(result().rows, ""))
    places = sorted(map(float, labels))
    assert len(places) >= 2 and all(b - a > 40 for a, b in pairwise(places))


def test_nothing_measured_is_a_picture_too() -> None:
    assert ElementTree.fromstring(plot((), "nothing")).tag == f"{SVG}svg"
