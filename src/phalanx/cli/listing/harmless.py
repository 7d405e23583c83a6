"""Text of the API on a terminal: whoever may name an object must not steer the reader's screen."""

from __future__ import annotations

import re
from collections.abc import Sequence

from phalanx.model.text.decoding import MAX_NAME

#: Longer cells are cut: an annotation may have 256 KiB.
MOST = 2000
_SUSPECT = re.compile(r"[^\x20-\x7e]")
# Blanks to Python, and more than that to others.
_BREAKS = frozenset("\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029")
_IN_JSON = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def harmless(text: str, most: int = MOST) -> str:
    """One line that is only printed: line breaks and tabs are blanks; other control characters, and marks that turn
    or join writing, are spelled out (`\\x1b`)."""
    if len(text) > most:
        text = text[: most - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return _SUSPECT.sub(_spelled, text)


def cells_of(row: Sequence[str], none: str) -> list[str]:
    """The cells of one row. Only the last may be longer than a name: it widens nobody else's."""
    most = [MAX_NAME] * (len(row) - 1) + [MOST]
    return [harmless(cell, length) or none for cell, length in zip(row, most, strict=False)]


def harmless_lines(text: str) -> str:
    """The same of whole answers, whose lines and tabs stay."""
    return "\n".join("\t".join(harmless(part, len(part)) for part in line.split("\t")) for line in text.split("\n"))


def harmless_json(text: str) -> str:
    """JSON whose strings have escapes for what a terminal would act upon; it means the same."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _spelled(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    # Any blank is a plain one; of the rest nobody knows what a terminal makes of it.
    if character.isspace() and character not in _BREAKS:
        return " "
    return repr(character)[1:-1]
