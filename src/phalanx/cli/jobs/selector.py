"""Label selectors as kubectl's users type them, for objects that are here already."""

from __future__ import annotations

from collections.abc import Mapping

import click

Requirements = list[tuple[str, str, frozenset[str]]]


def parse_selector(text: str) -> Requirements:
    """`a=b,c!=d,e,!f`: (key, operator, values) each. Raises click.UsageError."""
    found: Requirements = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, unequal, value = part.partition("!=")
        if unequal:
            found.append((key.strip(), "!=", frozenset((value.strip(),))))
            continue
        key, equal, value = part.replace("==", "=").partition("=")
        if equal:
            found.append((key.strip(), "=", frozenset((value.strip(),))))
        elif " " in part:
            raise click.UsageError(f"--selector {part!r}: expected key=value, key!=value, key or !key")
        else:
            found.append((part.lstrip("!"), "absent" if part.startswith("!") else "present", frozenset()))
    return found


def matches(requirements: Requirements, labels: Mapping[str, str]) -> bool:
    for key, operator, values in requirements:
        has = labels.get(key)
        held = {"=": has in values, "!=": has not in values, "present": has is not None, "absent": has is None}
        if not held[operator]:
            return False
    return True
