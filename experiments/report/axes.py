"""Axes, lines and words of a figure as SVG text.  Pure.

Figures are WIDTH units wide and shown at 340 to 640 pixels, so that words stay legible on a phone.  Ink is
`currentColor`; hues are those of Okabe and Ito, which people with colour blindness tell apart, and lines differ in
dashes too.  Blue is the page's, lighter on dark paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isclose, log10

PALETTE = ("var(--blue, #0072b2)", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2")
WIDTH, HEIGHT = 460, 210
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 10, 40
FONT = 12
CHARACTER = 6.9
"""Widest mean advance of a character at 12 px."""
ROW = 17
TICKS = 5

TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def scaled(most: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest unit of which `most` has one at least: divide by the first, print the second."""
    return next((unit for unit in units if most >= unit[0]), units[-1])


@dataclass(frozen=True, kw_only=True)
class Axis:
    """From `low` to `high`, both in units of the label."""

    label: str
    """With its unit."""
    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """0 to 1."""
        if self.log:
            low, high, value = log10(self.low), log10(self.high), log10(max(value, self.low))
        else:
            low, high = self.low, self.high
        return (value - low) / (high - low) if high > low else 0.0

    def ticks(self) -> list[float]:
        """Round values within the axis, TICKS or so."""
        if self.log:
            powers = [10.0**power for power in range(ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9) + 1)]
            if len(powers) > 1:
                return powers[:: max(1, ceil(len(powers) / TICKS))]
            whole = [factor * 10.0 ** floor(log10(self.low) + power) for power in (0, 1) for factor in (1, 2, 5)]
            return [value for value in whole if self.low <= value <= self.high]
        if self.high <= self.low:
            return [self.low]
        rough = (self.high - self.low) / TICKS
        power = 10.0 ** floor(log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
        first, last = ceil(self.low / step - 1e-6), floor(self.high / step + 1e-6)
        return [number * step for number in range(first, last + 1)]


def span(label: str, values: Sequence[float], *, log: bool = False, zero: bool = False) -> Axis:
    """An axis that holds all values; `zero`: and begins at zero."""
    low = 0.0 if zero else min(values, default=0.0)
    high = max(values, default=1.0)
    if log:
        low = max(low, 1e-9)
        return Axis(label=label, low=low, high=max(high, low * 1.5), log=True)
    return Axis(label=label, low=low, high=high if high > low else low + 1)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A named curve."""

    name: str
    points: Sequence[tuple[float, float]]
    stairs: bool = False
    """A value holds until the next, as in a cumulative distribution."""


@dataclass(frozen=True, kw_only=True)
class Area:
    """Where a figure's data go: pixels of its corners."""

    left: float = LEFT
    top: float = TOP
    right: float = WIDTH - RIGHT
    bottom: float = HEIGHT - BOTTOM

    def x(self, axis: Axis, value: float) -> float:
        """Pixel of a value."""
        return self.left + axis.place(value) * (self.right - self.left)

    def y(self, axis: Axis, value: float) -> float:
        """Pixel of a value, upwards."""
        return self.bottom - axis.place(value) * (self.bottom - self.top)


def lines(title: str, x: Axis, y: Axis, curves: Sequence[Line]) -> str:
    """A figure of curves with a legend above it."""
    names, depth = legend([(curve.name, number) for number, curve in enumerate(curves)])
    area = Area(top=TOP + depth, bottom=HEIGHT - BOTTOM + depth)
    drawn = [_curve(area, x, y, curve, number) for number, curve in enumerate(curves)]
    return picture(title, HEIGHT + depth, [names, x_axis(area, x), y_axis(area, y), *drawn])


def _curve(area: Area, x: Axis, y: Axis, curve: Line, number: int) -> str:
    parts = []
    for index, (at, value) in enumerate(curve.points):
        across, up = f"{area.x(x, at):.1f}", f"{area.y(y, value):.1f}"
        parts.append(f"M{across} {up}" if index == 0 else f"H{across}V{up}" if curve.stairs else f"L{across} {up}")
    return f'<path d="{"".join(parts)}" fill="none" {stroke(number)}/>'


def stroke(number: int) -> str:
    """Colour and dashes of the curve with this number."""
    dash = DASHES[number % len(DASHES)]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{PALETTE[number % len(PALETTE)]}" stroke-width="2"{dashes}'


def legend(names: Sequence[tuple[str, int]]) -> tuple[str, float]:
    """A short line and a name for each curve in as many rows as it takes, and their height; empty names have none."""
    parts, across, row = [], float(LEFT), 0
    for name, number in names:
        if not name:
            continue
        width = 26 + len(name) * CHARACTER + 12
        if across > LEFT and across + width > WIDTH:
            across, row = float(LEFT), row + 1
        y = TOP + row * ROW
        parts.append(
            f'<path d="M{across:.0f} {y}h20" fill="none" {stroke(number)}/>'
            f'<text x="{across + 25:.0f}" y="{y + 4}">{escape(name)}</text>'
        )
        across += width
    return "".join(parts), (row + 1) * ROW if parts else 0


def x_axis(area: Area, axis: Axis) -> str:
    """Ticks, numbers and label below the area."""
    ticks = axis.ticks()
    texts = numbers(ticks)
    parts = [f'<path d="M{area.left} {area.bottom}H{area.right}" class="axis"/>']
    for value, text in zip(ticks, texts, strict=True):
        x = area.x(axis, value)
        parts.append(f'<path d="M{x:.1f} {area.bottom}v4" class="axis"/>')
        parts.append(f'<text x="{x:.1f}" y="{area.bottom + 16}" text-anchor="middle">{text}</text>')
    middle = (area.left + area.right) / 2
    parts.append(f'<text x="{middle:.0f}" y="{area.bottom + 33}" text-anchor="middle">{escape(axis.label)}</text>')
    return "".join(parts)


def y_axis(area: Area, axis: Axis) -> str:
    """Ticks, grid lines and numbers left of the area, the label along it."""
    ticks = axis.ticks()
    parts = []
    for value, text in zip(ticks, numbers(ticks), strict=True):
        y = area.y(axis, value)
        parts.append(f'<path d="M{area.left} {y:.1f}H{area.right}" class="grid"/>')
        parts.append(f'<text x="{area.left - 5}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    middle = (area.top + area.bottom) / 2
    turn = f'transform="rotate(-90 12 {middle:.0f})"'
    parts.append(f'<text x="12" y="{middle + 4:.0f}" text-anchor="middle" {turn}>{escape(axis.label)}</text>')
    return "".join(parts)


def numbers(values: Sequence[float]) -> list[str]:
    """Equal precision for all, no more than they need."""
    for digits in range(7):
        texts = [f"{value:.{digits}f}" for value in values]
        if all(
            isclose(float(text), value, rel_tol=1e-6, abs_tol=1e-9) for text, value in zip(texts, values, strict=True)
        ):
            return texts
    return [f"{value:g}" for value in values]


def fitted(name: str, width: float) -> str:
    """A name cut to what fits into so many units."""
    most = max(2, int(width / CHARACTER))
    return name if len(name) <= most else name[: most - 1] + "…"


def picture(title: str, height: float, parts: Sequence[str], *, width: float = WIDTH) -> str:
    """The whole `<svg>`."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'class="plot" font-size="{FONT}" fill="currentColor"><title>{escape(title)}</title>{"".join(parts)}</svg>'
    )
