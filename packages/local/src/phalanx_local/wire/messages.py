"""The messages of the built-in kinds: which number is which field, from the table in messages.txt.

A line without indent names a group version; below it a line (continued where indented deeper) is a message
and its fields, numbered from 1 unless `N=` says otherwise. `!` after a name: written also when it has its
zero value; `*` after a type: optional by presence, so that zero is a value. Types: `s` string (the default),
`i` integer, `b` boolean, `f` double, `y` bytes, `q` quantity, `x` int-or-string, `t` `u` time, `d` duration,
`r` embedded JSON, `T` or `group.version/T` a message, `[T]` repeated, `<T>` a map from strings, `([T])` a
message that only wraps a list, `-` as the name: the fields of the message belong to its holder.

Source of the facts: the protobuf tags of the Kubernetes 1.36 API types.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import NamedTuple


class Field(NamedTuple):
    """One field: JSON name (`-` when inlined), type notation, and whether its zero value is kept."""

    name: str
    type: str
    keeps_zero: bool


Message = dict[int, Field]


@cache
def message(stem: str, name: str) -> Message | None:
    """The fields of a message by number, or None when it is not in the table."""
    words = _tables().get((stem, name))
    if words is None:
        return None
    fields: Message = {}
    number = 0
    for word in words:
        head, _, type_ = word.partition(":")
        explicit, equals, rest = head.partition("=")
        number = int(explicit) if equals else number + 1
        field = rest if equals else head
        keeps = field.endswith("!") or type_.endswith("*")
        fields[number] = Field(field.rstrip("!"), type_.rstrip("*") or "s", keeps)
    return fields


@cache
def _tables() -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    stem = ""
    words: list[str] = []
    text = resources.files(__package__).joinpath("messages.txt").read_text("utf-8")
    for line in text.splitlines():
        if not line.startswith(" "):
            stem = line
        elif line.startswith("   "):
            words.extend(line.split())
        else:
            name, *words = line.split()
            found[(stem, name)] = words
    return found
