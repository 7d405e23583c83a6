"""Protobuf messages of the built-in kinds: field numbers from the table in messages.txt.

A line without indent names a group version; below it a line (continued by deeper indented lines) is a message
with its fields, numbered from 1 unless `N=` sets the number. `!` after a name: the zero value is written too; `*`
after a type: optional by presence, so that zero is a value. Types: `s` string (the default), `i` integer, `b`
boolean, `f` double, `y` bytes, `q` quantity, `x` int-or-string, `t` `u` time, `d` duration, `r` embedded JSON,
`T` or `group.version/T` a message, `[T]` repeated, `<T>` a map from strings, `([T])` a message that only wraps a
list, `-` as the name: the fields of the message are inlined into the outer one.

Source: the protobuf tags of the Kubernetes 1.36 API types.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import NamedTuple


class Field(NamedTuple):
    """One field of a protobuf message: JSON name (`-` if inlined), type notation, and whether its zero value is
    significant."""

    name: str
    type: str
    keeps_zero: bool


Message = dict[int, Field]


@cache
def message(stem: str, name: str) -> Message | None:
    """Return the fields of a protobuf message by number; None if the table does not contain the message."""
    words = _tables().get((stem, name))
    if words is None:
        return None
    fields: Message = {}
    number = 0
    for word in words:
        head, _, type_ = word.partition(":")
        explicit, equals, numbered = head.partition("=")
        number = int(explicit) if equals else number + 1
        field = numbered if equals else head
        keeps = field.endswith("!") or type_.endswith("*")
        fields[number] = Field(field.rstrip("!"), type_.rstrip("*") or "s", keeps)
    return fields


@cache
def _tables() -> dict[tuple[str, str], list[str]]:
    messages: dict[tuple[str, str], list[str]] = {}
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
            messages[(stem, name)] = words
    return messages
