"""HTML from plain values: everything that is not markup already is escaped, so that no name can become code."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from ..arrays import visible

VOID = {"br", "hr", "img", "input", "link", "meta"}


class Markup(str):
    """Text that is HTML already."""


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element; None and False leave an attribute or a child out, True leaves its value out.

    >>> str(tag("p", "1 < 2", tag("b", "!"), class_="note", hidden=True, title=None))
    '<p class="note" hidden>1 &lt; 2<b>!</b></p>'
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{name}{written}>" if name in VOID else f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Any) -> Markup:
    """Children one after the other; lists and tuples are taken apart."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, list | tuple):
            parts.append(join(*child))
        elif child is not None and child is not False:
            parts.append(child if isinstance(child, Markup) else escape(visible(child)))
    return Markup("".join(parts))


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    key = key.rstrip("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{escape(visible(value))}"'


def embedded(data: Any, identifier: str) -> Markup:
    """Data for the scripts of a page: JSON in which no `<` is left that could end the element."""
    text = json.dumps(_visible(data), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # Line separators are allowed in JSON, but not in every script.
    for sign in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(f'<script type="application/json" id="{escape(identifier)}">{text}</script>')


def _visible(data: Any) -> Any:
    """Data in which no text hides a character."""
    if isinstance(data, str):
        return visible(data)
    if isinstance(data, dict):
        return {_visible(key): _visible(value) for key, value in data.items()}
    return [_visible(value) for value in data] if isinstance(data, list | tuple) else data
