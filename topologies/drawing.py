"""The picture of a fabric as SVG: tiers as rows, hosts below, cables as wide as they are fast.

Ink is `currentColor` and boxes are a thin wash of it, so that the picture takes the colours of the page it stands in,
light or dark.  Utilisation uses hues of the Okabe-Ito palette, which people with colour blindness tell apart; every
cable also carries its figures as a tooltip.  The same fabric always gives the same text.
"""

from collections.abc import Iterator, Mapping
from math import hypot
from xml.etree import ElementTree

from topologies.errors import UnknownName, UserError
from topologies.layout import LEFT, Box, Layout, plan
from topologies.model import Link, Topology
from topologies.units import format_delay, format_rate

SCALE = (
    (0.01, "below 1%", "#999999"),
    (0.25, "1-25%", "#56b4e9"),
    (0.50, "25-50%", "#009e73"),
    (0.75, "50-75%", "#e69f00"),
    (float("inf"), "75-100%", "#d55e00"),
)
"""Upper end, legend and colour of each class of utilisation."""

THINNEST, WIDEST = 1.2, 7.0
"""Pixels of stroke: the slowest cable of a fabric, and the most that any gets."""


def draw(topology: Topology, *, utilisation: Mapping[str, float] | None = None) -> str:
    """An `<svg>` element as text; `utilisation` is link name -> share of its rate, 0 to 1, of the busier direction.

    Raises UnknownName for a link that is not in the fabric, UserError for a share below zero.
    """
    shares = utilisation or {}
    for name, share in shares.items():
        if name not in topology.link_named:
            raise UnknownName("link", name, topology.link_named)
        if not share >= 0:
            raise UserError(f"link {name}: a utilisation of {share} is below zero")
    layout = plan(topology)
    height = layout.height + (34 if utilisation is not None else 0)
    svg = _element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {layout.width:.0f} {height:.0f}",
        width=f"{layout.width:.0f}",
        height=f"{height:.0f}",
        role="img",
        font_family="system-ui, 'DejaVu Sans', sans-serif",
        font_size="12",
        fill="currentColor",
        style="max-width:100%;height:auto",
    )
    svg.append(
        _element("title", text=f"{topology.name}: {len(topology.hosts)} hosts, {len(topology.switches)} switches")
    )
    svg.extend(_cables(topology, layout, shares, coloured=utilisation is not None))
    svg.extend(_nodes(topology, layout))
    svg.extend(_row_names(topology, layout))
    if utilisation is not None:
        svg.extend(_legend(layout))
    ElementTree.indent(svg)
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def _cables(
    topology: Topology, layout: Layout, shares: Mapping[str, float], *, coloured: bool
) -> Iterator[ElementTree.Element]:
    slowest = min((link.rate_bps for link in topology.links), default=1)
    group = _element("g", fill="none", stroke="currentColor")
    if layout.stacked:
        group.extend(_trunks(topology, layout))
    for link in topology.links:
        share = shares.get(link.name)
        stroke = min(THINNEST * (link.rate_bps / slowest) ** 0.5, WIDEST)
        line = _element(
            "path",
            d=_course(topology, layout, link, stroke),
            stroke_width=f"{stroke:.1f}",
            stroke=_colour(share) if share is not None else None,
            stroke_opacity="0.2" if coloured and share is None else "0.55" if share is None else None,
        )
        figures = f"{link.name}: {format_rate(link.rate_bps)}, {format_delay(link.delay_ns)}"
        line.append(_element("title", text=figures + (f", {share:.1%} used" if share is not None else "")))
        group.append(line)
    yield group


def _trunks(topology: Topology, layout: Layout) -> Iterator[ElementTree.Element]:
    """The line down from a leaf along its column of hosts."""
    lowest: dict[str, Box] = {}
    for end in topology.host_interfaces():
        leaf, box = topology.peer_of[end.name].node, layout.boxes[end.node]
        if leaf not in lowest or box.y > lowest[leaf].y:
            lowest[leaf] = box
    for leaf, box in lowest.items():
        x, start = _trunk_x(box), layout.boxes[leaf].bottom
        yield _element("path", d=f"M{x:.1f} {start:.1f}V{box.y:.1f}", stroke_opacity="0.55")


def _trunk_x(host: Box) -> float:
    return host.left - 8


def _course(topology: Topology, layout: Layout, link: Link, stroke: float) -> str:
    """From box to box: straight between rows, a stub from the trunk to a stacked host, an arc inside a row."""
    one, other = layout.boxes[link.a.node], layout.boxes[link.b.node]
    if layout.stacked and (link.a.node in topology.host_named or link.b.node in topology.host_named):
        host = one if link.a.node in topology.host_named else other
        return f"M{_trunk_x(host):.1f} {host.y:.1f}H{host.left:.1f}"
    aside = (link.number - 1) * (stroke + 2.5)
    if one.y == other.y:
        left, right = sorted((one, other), key=lambda box: box.x)
        if _neighbours(layout, link):
            return f"M{left.right:.1f} {left.y + aside:.1f}H{right.left:.1f}"
        bend = left.top - 44 - aside
        return f"M{left.x:.1f} {left.top:.1f}Q{(left.x + right.x) / 2:.1f} {bend:.1f} {right.x:.1f} {right.top:.1f}"
    upper, lower = sorted((one, other), key=lambda box: box.y)
    across, down = lower.x - upper.x, lower.top - upper.bottom
    aside *= hypot(across, down) / down  # parallel cables keep their distance at every slope
    aside = min(aside, upper.width / 2 - 3, lower.width / 2 - 3)
    return f"M{upper.x + aside:.1f} {upper.bottom:.1f}L{lower.x + aside:.1f} {lower.top:.1f}"


def _neighbours(layout: Layout, link: Link) -> bool:
    row = next(row for row in layout.rows if link.a.node in row)
    return abs(row.index(link.a.node) - row.index(link.b.node)) == 1


def _nodes(topology: Topology, layout: Layout) -> Iterator[ElementTree.Element]:
    for node in topology.nodes:
        box = layout.boxes[node.name]
        yield _element(
            "rect",
            x=f"{box.left:.1f}",
            y=f"{box.top:.1f}",
            width=f"{box.width:.1f}",
            height=f"{box.height:.1f}",
            rx="4" if node.name in topology.switch_named else "9",
            fill_opacity="0.08",
            stroke="currentColor",
            stroke_opacity="0.7",
        )
        yield _element("text", x=f"{box.x:.1f}", y=f"{box.y + 4:.1f}", text_anchor="middle", text=node.name)


def _row_names(topology: Topology, layout: Layout) -> Iterator[ElementTree.Element]:
    """Left of each row what it is, and halfway to the row above what its cables upwards are like."""
    rows = [*layout.rows, tuple(host.name for host in topology.hosts)]
    for number, row in enumerate(rows):
        first = min((layout.boxes[name] for name in row), key=lambda box: box.y)
        kinds = dict.fromkeys(topology.switch_named[name].tier for name in row if name in topology.switch_named)
        what = f"{len(row)} x {'/'.join(kinds) or 'host'}"
        yield _element("text", x="12", y=f"{first.y + 4:.1f}", font_weight="600", text=what)
        for line, text in enumerate(_cable_kinds(topology, frozenset(row), frozenset(row))):
            yield _small(f"{text} across", first.y + 18 + line * 14)
        above = min((layout.boxes[name] for name in rows[number - 1]), key=lambda box: box.y) if number else None
        middle = first.y - 30 if above is None else (above.y + first.y) / 2
        higher = frozenset(name for names in rows[:number] for name in names)
        for line, text in enumerate(_cable_kinds(topology, frozenset(row), higher)):
            yield _small(text, middle + 4 + line * 14)


def _small(text: str, y: float) -> ElementTree.Element:
    return _element("text", x="12", y=f"{y:.1f}", font_size="11", fill_opacity="0.75", text=text)


def _cable_kinds(topology: Topology, row: frozenset[str], others: frozenset[str]) -> list[str]:
    """`16 x 100 Gb/s, 1 us`: the cables from a row to other nodes; two kinds at most, else one and how many more."""
    kinds: dict[str, int] = {}
    for link in topology.links:
        one, other = link.a.node, link.b.node
        if (one in row and other in others) or (other in row and one in others):
            kind = f"{format_rate(link.rate_bps)}, {format_delay(link.delay_ns)}"
            kinds[kind] = kinds.get(kind, 0) + 1
    texts = [f"{count} x {kind}" for kind, count in kinds.items()]
    return texts if len(texts) <= 2 else [texts[0], f"and {len(texts) - 1} other kinds"]


def _legend(layout: Layout) -> Iterator[ElementTree.Element]:
    y = layout.height + 12
    yield _element("text", x="12", y=f"{y + 4:.1f}", text="busier direction of a cable:")
    for number, (_, text, colour) in enumerate(SCALE):
        x = LEFT + number * 82
        yield _element("rect", x=f"{x}", y=f"{y - 4:.1f}", width="16", height="8", fill=colour)
        yield _element("text", x=f"{x + 21}", y=f"{y + 4:.1f}", font_size="11", text=text)


def _colour(share: float) -> str:
    return next(colour for end, _, colour in SCALE if share < end)


def _element(tag: str, *, text: str | None = None, **attributes: str | None) -> ElementTree.Element:
    """Attributes with `_` for `-`; None leaves one out."""
    keep = {name.replace("_", "-"): value for name, value in attributes.items() if value is not None}
    element = ElementTree.Element(tag, keep)
    element.text = text
    return element
