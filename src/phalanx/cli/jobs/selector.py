"""Label selectors in kubectl's notation, for objects that the command has already read."""

from __future__ import annotations

from collections.abc import Mapping

import click

from phalanx.model.text.decoding import quoted

Requirements = list[tuple[str, str, frozenset[str]]]


def parse_selector(text: str) -> Requirements:
    """Parse a label selector `a=b,c!=d,e,!f` to (key, operator, value). Raises click.UsageError."""
    requirements: Requirements = []
    for part in filter(None, (text_part.strip() for text_part in text.split(","))):
        key, unequal, value = part.partition("!=")
        if unequal:
            requirements.append((key.strip(), "!=", frozenset((value.strip(),))))
            continue
        key, equal, value = part.replace("==", "=").partition("=")
        if equal:
            requirements.append((key.strip(), "=", frozenset((value.strip(),))))
        elif " " in part:
            raise click.UsageError(f"invalid --selector {quoted(part)}; write key=value, key!=value, key or !key")
        else:
            requirements.append((part.lstrip("!"), "absent" if part.startswith("!") else "present", frozenset()))
    return requirements


def matches(requirements: Requirements, labels: Mapping[str, str]) -> bool:
    for key, operator, values in requirements:
        label = labels.get(key)
        results = {
            "=": label in values,
            "!=": label not in values,
            "present": label is not None,
            "absent": label is None,
        }
        if not results[operator]:
            return False
    return True
