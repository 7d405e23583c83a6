"""Semantic versions (semver.org 2.0.0), compared according to the specification."""

from __future__ import annotations

import re
from functools import lru_cache

from phalanx.model.text.decoding import quoted

_NUMBER = r"0|[1-9][0-9]*"
_VERSION = re.compile(
    rf"(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER})"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)

_LONGEST = 256

# Numbers sort before words, and a version with a suffix before one without: (major, minor, patch, suffix).
Version = tuple[int, int, int, tuple[tuple[int, int, str], ...]]
_RELEASED = ((2, 0, ""),)


@lru_cache(maxsize=1024)
def parse_version(text: str) -> Version:
    """Parse a semantic version. Raise ValueError."""
    match = _VERSION.fullmatch(text) if len(text) <= _LONGEST else None
    parts = (match["pre"] or "").split(".") if match else []
    if match is None or any(part.isdecimal() and len(part) > 1 and part[0] == "0" for part in parts):
        raise ValueError(f"{quoted(text)} is not a semantic version such as 1.2.3")
    suffix = tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)
    return int(match["major"]), int(match["minor"]), int(match["patch"]), suffix if match["pre"] else _RELEASED


def normalised(text: str) -> str:
    """Normalise the text of a semantic version: without a leading v, with missing numbers as 0, and without leading
    zeros."""
    if len(text) > _LONGEST:
        return text
    body, dash, suffix = text.strip().removeprefix("v").partition("-")
    numbers = [str(int(part)) if part.isdecimal() else part for part in body.split(".")]
    return ".".join([*numbers, "0", "0"][: max(3, len(numbers))]) + dash + suffix
