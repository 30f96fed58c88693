"""The plot is well-formed SVG with a dot for each steady pair."""

from __future__ import annotations

from xml.etree import ElementTree

from paceline.bench.compare.pairing import Pair, summarize
from paceline.bench.compare.plot import TOP, plot
from paceline.bench.compare.regime import Regime
from paceline.bench.compare.workloads import WORKLOADS

SVG = "{http://www.w3.org/2000/svg}"


def pair(workload: str, ratio: float, *, steady: bool = True) -> Pair:
    return Pair(workload, ratio, 1.0, ratio, Regime(50.0), Regime(50.0), steady)


def drawn(pairs: list[Pair], title: str = "a title") -> ElementTree.Element:
    names = dict.fromkeys(found.workload for found in pairs)
    rows = [summarize(WORKLOADS[name], [found for found in pairs if found.workload == name], "the same file") for name in names]
    return ElementTree.fromstring(plot(title, rows, pairs))


def test_every_steady_pair_is_a_dot_in_its_workloads_row() -> None:
    root = drawn([pair("decode1", 2.0), pair("decode1", 3.0), pair("http", 4.0), pair("http", 9.0, steady=False)])
    heights = [circle.get("cy") for circle in root.iter(f"{SVG}circle")]
    assert len(heights) == 3
    assert len(set(heights)) == 2


def test_larger_ratios_lie_further_right_and_all_inside() -> None:
    root = drawn([pair("decode1", 0.3), pair("decode1", 1.0), pair("decode1", 30.0)])
    places = [float(circle.get("cx", "")) for circle in root.iter(f"{SVG}circle")]
    assert places == sorted(places)
    assert 0 < places[0] < places[1] < places[2] < float(root.get("width", ""))


def test_axis_has_a_line_at_one_even_when_all_are_faster() -> None:
    labels = [text.text for text in drawn([pair("decode1", 3.0), pair("decode1", 3.1)]).iter(f"{SVG}text")]
    assert "1×" in labels


def test_title_with_markup_stays_text() -> None:
    root = drawn([pair("decode1", 2.0)], title="a < b & c")
    assert any(text.text == "a < b & c" for text in root.iter(f"{SVG}text"))
    assert float(root.get("height", "")) > TOP
