"""Figures of the page as SVG; scripts add names on hover and colours, but each can be read without."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

from ..pl.style import COLOURS
from .content import Column, Evaluation, SampleMap
from .markup import Markup, join, tag

# A shape beside each colour, for grey prints; about as large as a circle of radius 5.
SHAPES = (
    "M5,0A5,5,0,1,1,-5,0A5,5,0,1,1,5,0Z",
    "M0,-6L5.5,4.5H-5.5Z",
    "M-4.5,-4.5H4.5V4.5H-4.5Z",
    "M0,-6.3L6.3,0L0,6.3L-6.3,0Z",
    "M0,6L5.5,-4.5H-5.5Z",
)
# Stops of viridis.
RAMP = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
MISSING = "#9a9a9a"
WIDTH, HEIGHT, EDGE = 480, 360, 26


def colour_of(column: Column, place: int) -> str:
    code = column.codes[place]
    return MISSING if code < 0 else COLOURS[int(code) % len(COLOURS)]


def shape_of(column: Column, place: int) -> str:
    return SHAPES[int(column.codes[place]) % len(SHAPES)] if column.codes[place] >= 0 else SHAPES[0]


def legend(column: Column) -> Markup:
    """A mark for every class that occurs."""
    assert column.values is not None
    items = []
    for code, name in enumerate(column.values):
        if code in column.codes:
            one = Column(column.name, np.array([code]), column.values)
            mark = tag("path", d=shape_of(one, 0), fill=colour_of(one, 0))
            items.append(tag("li", tag("svg", mark, viewBox="-7 -7 14 14", aria_hidden="true"), name))
    return tag("ul", items, class_="legend")


def samples(found: SampleMap) -> Markup:
    """A mark per sample; the first can be reached by keyboard, and from there all others."""
    label, n = found.columns[0], len(found.names)
    xy = _fitted(found.places)
    marks = []
    for k in range(n):
        value = label.values[label.codes[k]] if label.values is not None and label.codes[k] >= 0 else "unknown"
        marks.append(
            tag(
                "path", d=shape_of(label, k), fill=colour_of(label, k), class_="mark", role="img",
                aria_label=f"{found.names[k]}, {label.name}: {value}", tabindex=0 if k == 0 else -1,
                transform=f"translate({xy[k, 0]:.1f},{xy[k, 1]:.1f})",
            )
        )  # fmt: skip
    axes = [
        tag("text", "MDS axis 1", x=WIDTH - 8, y=HEIGHT - 8, text_anchor="end", class_="soft"),
        tag("text", "MDS axis 2", x=14, y=8, text_anchor="end", class_="soft", transform="rotate(-90 14 8)"),
    ]
    name = f"Map of {n} samples; arrow keys go from one to the next"
    return tag("svg", axes, marks, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="group", aria_label=name, class_="plot")


def _fitted(places: np.ndarray) -> np.ndarray:
    """Places in the picture, one unit as long in both directions."""
    low, high = places.min(axis=0), places.max(axis=0)
    room = np.array([WIDTH, HEIGHT]) - 2 * EDGE
    scale = float(np.min(room / np.where(high > low, high - low, np.inf))) if (high > low).any() else 0.0
    centred = (places - (low + high) / 2) * (scale or 1.0)
    return np.column_stack([WIDTH / 2 + centred[:, 0], HEIGHT / 2 - centred[:, 1]])


def heat(found: SampleMap) -> Markup:
    """Distances as a picture of a pixel per pair, in the order of the labels, with bars of their colours."""
    label, order = found.columns[0], found.order
    n, size, bar = len(order), 400, 12
    side = size / n
    shown = found.distances[np.ix_(order, order)]
    image = tag("image", href=f"data:image/png;base64,{_png(shown)}", x=bar + 4, y=bar + 4, width=size, height=size,
                preserveAspectRatio="none")  # fmt: skip
    bars = []
    for k, place in enumerate(order):
        colour, start = colour_of(label, place) if label.is_class else MISSING, bar + 4 + k * side
        bars.append(tag("rect", x=0, y=f"{start:.2f}", width=bar, height=f"{side + 0.2:.2f}", fill=colour))
        bars.append(tag("rect", x=f"{start:.2f}", y=0, width=f"{side + 0.2:.2f}", height=bar, fill=colour))
    cursor = tag("rect", class_="cursor", width=f"{side:.2f}", height=f"{side:.2f}", x=bar + 4, y=bar + 4)
    edge = size + bar + 4
    title = f"Heat map of the distances between {n} samples, sorted by {label.name}; arrow keys read single distances"
    return tag("svg", tag("title", title), bars, image, cursor, viewBox=f"0 0 {edge} {edge}", class_="heat", tabindex=0,
               role="application", aria_label=title)  # fmt: skip


def _png(values: np.ndarray) -> str:
    """A picture with a pixel per value, dark where it is small."""
    shares = values / (values.max() or 1.0) * (len(RAMP) - 1)
    low = np.minimum(shares.astype(int), len(RAMP) - 2)
    stops = np.array(RAMP, dtype=np.float64)
    pixels = np.rint(stops[low] + (shares - low)[..., None] * (stops[low + 1] - stops[low])).astype(np.uint8)
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    whole = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return base64.b64encode(whole).decode()


def ramp_legend(most: float) -> Markup:
    stops = ", ".join(f"rgb{colour}" for colour in RAMP)
    bar = tag("span", class_="ramp", style=f"background: linear-gradient(to right, {stops})")
    return tag("ul", tag("li", "0", bar, f"{most:.3g}"), class_="legend")


def intervals(found: Evaluation) -> Markup:
    """Scores of all methods with their intervals, and where guessing is."""
    rows = [row for row in found.rows if row["value"] is not None]
    left, right, step, wide = 110, 14, 30, 460
    height, across = step * len(rows) + 46, wide - left - right
    x = lambda value: left + across * value  # noqa: E731
    parts: list[Any] = []
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(tag("line", x1=x(value), x2=x(value), y1=6, y2=height - 40, class_="tick"))
        parts.append(tag("text", f"{value:g}", x=x(value), y=height - 22, text_anchor="middle", class_="soft"))
    parts.append(tag("line", x1=x(found.chance), x2=x(found.chance), y1=6, y2=height - 40, class_="chance"))
    parts.append(tag("text", found.score.replace("_", " ") + " (dashed: guessing)", x=x(0.5), y=height - 4,
                     text_anchor="middle", class_="soft"))  # fmt: skip
    for k, row in enumerate(rows):
        y, colour = 24 + step * k, COLOURS[0] if k == 0 else "currentColor"
        parts.append(
            tag("text", row["method"], x=left - 10, y=y + 4, text_anchor="end", class_="good" if k == 0 else None)
        )
        if row.get("low") is not None:
            parts.append(
                tag("line", x1=x(row["low"]), x2=x(row["high"]), y1=y, y2=y, class_="whisker", style=f"color:{colour}")
            )
        parts.append(tag("circle", cx=x(row["value"]), cy=y, r=6, fill=colour, data_name=_told(row)))
    label = "; ".join(_told(row) for row in rows)
    return tag(
        "svg", tag("title", f"Scores on held-out samples. {label}"), parts, viewBox=f"0 0 {wide} {height}", role="img"
    )


def _told(row: dict) -> str:
    interval = "" if row.get("low") is None else f" ({row['low']:.2f} to {row['high']:.2f})"
    return f"{row['method']}: {row['value']:.2f}{interval}"


def lines(series: dict[str, np.ndarray], horizontal: str) -> Markup:
    """Shares over the epochs, from 0 to their highest, each in its colour and dash."""
    left, top, across, high = 44, 10, 420, 220
    n = max(len(values) for values in series.values())
    most = max(1.0, max(float(np.nanmax(values)) for values in series.values()))
    parts = [tag("line", x1=left, x2=left + across, y1=top + high, y2=top + high, class_="axis")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = top + high * (1 - share / most)
        parts.append(tag("line", x1=left, x2=left + across, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="tick"))
        parts.append(tag("text", f"{share:.0%}", x=left - 6, y=f"{y + 4:.1f}", text_anchor="end", class_="soft"))
    for epoch in sorted({1, max(1, n // 2), n}):
        x = left + across * (epoch - 1) / max(1, n - 1)
        parts.append(tag("text", epoch, x=f"{x:.1f}", y=top + high + 18, text_anchor="middle", class_="soft"))
    parts.append(tag("text", horizontal, x=left + across / 2, y=top + high + 34, text_anchor="middle", class_="soft"))
    keys = []
    for k, (name, values) in enumerate(series.items()):
        dash = (None, "6 4", "2 3", "8 3 2 3")[k % 4]
        points = " ".join(
            f"{left + across * e / max(1, n - 1):.1f},{top + high * (1 - value / most):.1f}"
            for e, value in enumerate(values) if np.isfinite(value)
        )  # fmt: skip
        parts.append(tag("polyline", points=points, class_="line", stroke=COLOURS[k], stroke_dasharray=dash))
        key = tag("path", d="M-7,0H7", stroke=COLOURS[k], stroke_width=3, stroke_dasharray=dash)
        keys.append(tag("li", tag("svg", key, viewBox="-7 -7 14 14", aria_hidden="true"), name))
    told = "; ".join(f"{name} from {values[0]:.0%} to {values[-1]:.0%}" for name, values in series.items())
    svg = tag("svg", tag("title", f"Course of training. {told}"), parts, role="img",
              viewBox=f"0 0 {left + across + 10} {top + high + 40}")  # fmt: skip
    return join(svg, tag("ul", keys, class_="legend"))
