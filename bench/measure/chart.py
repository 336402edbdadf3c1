"""Charts of lines, as SVG, in the look of the project's other pictures: legible on white as on black."""

import math
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT = 720, 56, 36
# Of a panel: above the field, the field, below it. And below all panels, what the axis means.
TITLE, FIELD, FOOT, LEGEND = 48, 150, 24, 24

LIGHT = {"text": "#57606a", "title": "#24292f", "lines": ["#0969da", "#bc4c00", "#1a7f37", "#8250df"]}
DARK = {"text": "#9198a1", "title": "#f0f6fc", "lines": ["#4493f8", "#f0883e", "#3fb950", "#ab7df8"]}


@dataclass(frozen=True)
class Panel:
    """Lines over one axis: `{name: {x: y}}`."""

    title: str
    lines: dict


def draw(title, axis, panels):
    """The panels below each other; what stands on the x axis is evenly spaced, whatever the numbers."""
    places = sorted({x for panel in panels for points in panel.lines.values() for x in points})
    height = len(panels) * (TITLE + FIELD + FOOT) + LEGEND
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_style()}</style>",
    ]
    # A line has the same colour in all panels.
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    for n, panel in enumerate(panels):
        _panel(svg, panel, places, names, n * (TITLE + FIELD + FOOT) + TITLE)
    svg.append(_text((LEFT + WIDTH - RIGHT) / 2, height - 8, "middle", axis))
    return "\n".join([*svg, "</svg>", ""])


def _style():
    rules = [
        f"text{{font:13px sans-serif;fill:{LIGHT['text']}}}.t{{font-weight:600;fill:{LIGHT['title']}}}",
        ".g{stroke:#8c959f;stroke-opacity:.35}.l{stroke-width:2;fill:none}",
        *(f".c{n}{{stroke:{c}}}.p{n}{{fill:{c}}}" for n, c in enumerate(LIGHT["lines"])),
        f"@media(prefers-color-scheme:dark){{text{{fill:{DARK['text']}}}.t{{fill:{DARK['title']}}}",
        *(f".c{n}{{stroke:{c}}}.p{n}{{fill:{c}}}" for n, c in enumerate(DARK["lines"])),
        "}",
    ]
    return "".join(rules)


def _panel(svg, panel, places, names, top):
    bottom = top + FIELD
    step = _step(max(y for points in panel.lines.values() for y in points.values()))
    highest = max(1, math.ceil(max(y for points in panel.lines.values() for y in points.values()) / step)) * step

    def x_of(x):
        # Half a step of air at both ends.
        return LEFT + (places.index(x) + 0.5) / len(places) * (WIDTH - LEFT - RIGHT)

    def y_of(y):
        return bottom - y / highest * FIELD

    svg.append(f'<text class="t" x="{LEFT}" y="{top - 28}">{escape(panel.title)}</text>')
    for n in range(round(highest / step) + 1):
        svg.append(_grid(LEFT, y_of(n * step), WIDTH - RIGHT, y_of(n * step)))
        svg.append(_text(LEFT - 8, y_of(n * step) + 4, "end", number(n * step)))
    for x in places:
        svg.append(_grid(x_of(x), top, x_of(x), bottom))
        svg.append(_text(x_of(x), bottom + 17, "middle", number(x)))
    along = LEFT
    for name, points in panel.lines.items():
        n = names.index(name)
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in sorted(points.items()))
        svg.append(f'<polyline class="l c{n}" points="{path}"/>')
        svg += [f'<circle class="p{n}" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3.5"/>' for x, y in points.items()]
        svg.append(f'<circle class="p{n}" cx="{along + 4}" cy="{top - 12}" r="4"/>')
        svg.append(_text(along + 14, top - 8, "start", name))
        along += 34 + 7 * len(name)


def _step(highest):
    """A round distance between grid lines: about five of them."""
    raw = max(highest / 4, 1e-9)
    power = 10 ** math.floor(math.log10(raw))
    return next((factor * power for factor in (1, 2, 2.5, 5) if factor * power >= raw), 10 * power)


def _grid(x1, y1, x2, y2):
    return f'<line class="g" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x, y, anchor, text):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(str(text))}</text>'


def number(value):
    """`100000` as `100,000`, `0.30000000000000004` as `0.3`."""
    return f"{round(value, 4):,}" if isinstance(value, int) else f"{value:,.4f}".rstrip("0").rstrip(".")
