"""The plot of a comparison: an SVG file written by hand, so that it needs no library.

The one idea: a row per workload with a dot for each steady pair's ratio on a logarithmic axis and a bar at the median, so that a reader
sees at once how large the difference is and whether the pairs agree. The line at 1 is "as fast as the peer".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from paceline.bench.compare.pairing import ComparisonRow, Pair

ROW_HEIGHT = 44
LEFT, WIDTH, RIGHT = 120, 480, 220
"""Columns: the workload's name, the axis, the figures in words. Units: pixels."""
TOP, BOTTOM = 60, 36
MARKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


def plot(title: str, rows: Sequence[ComparisonRow], pairs: Sequence[Pair]) -> str:
    """The whole SVG document."""
    height = TOP + ROW_HEIGHT * len(rows) + BOTTOM
    marks = [mark for mark in MARKS if _limits(rows)[0] <= mark <= _limits(rows)[1]]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{height}"',
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="16" y="28" font-size="15">{escape(title)}</text>',
        *(line for mark in marks for line in _mark(mark, rows, height)),
        *(line for number, row in enumerate(rows) for line in _row(row, number, rows, pairs)),
        f'<text x="{LEFT + WIDTH / 2}" y="{height - 6}" text-anchor="middle">ours / peer</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _limits(rows: Sequence[ComparisonRow]) -> tuple[float, float]:
    """The ends of the axis: marks that hold every ratio, and 1."""
    low, high = min([1.0, *(row.ratio_low for row in rows)]), max([1.0, *(row.ratio_high for row in rows)])
    below, above = [mark for mark in MARKS if mark < low], [mark for mark in MARKS if mark > high]
    return (below[-1] if below else low), (above[0] if above else high)


def _x(ratio: float, rows: Sequence[ComparisonRow]) -> float:
    low, high = _limits(rows)
    return round(LEFT + WIDTH * math.log(ratio / low) / math.log(high / low), 1)


def _mark(mark: float, rows: Sequence[ComparisonRow], height: int) -> Iterator[str]:
    x, color = _x(mark, rows), "#444" if mark == 1.0 else "#ddd"
    yield f'<line x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{height - BOTTOM}" stroke="{color}"/>'
    yield f'<text x="{x}" y="{TOP - 12}" text-anchor="middle" fill="#444" font-size="11">{mark:g}×</text>'


def _row(row: ComparisonRow, number: int, rows: Sequence[ComparisonRow], pairs: Sequence[Pair]) -> Iterator[str]:
    y, x = TOP + ROW_HEIGHT * number + ROW_HEIGHT // 2, _x(row.ratio, rows)
    yield f'<text x="16" y="{y + 5}">{escape(row.workload)}</text>'
    for pair in pairs:
        if pair.workload == row.workload and pair.is_steady:
            yield f'<circle cx="{_x(pair.ratio, rows)}" cy="{y}" r="4" fill="#2a6fbb" fill-opacity="0.5"/>'
    yield f'<line x1="{x}" y1="{y - 12}" x2="{x}" y2="{y + 12}" stroke="#b3261e" stroke-width="3"/>'
    figures = f"{row.ratio:.2f}× · {row.ours:,.4g} / {row.peer:,.4g} {row.unit}"
    yield f'<text x="{LEFT + WIDTH + 16}" y="{y + 5}">{escape(figures)}</text>'
