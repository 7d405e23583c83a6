"""Text from the API, made safe for a terminal: object names must not contain control sequences."""

from __future__ import annotations

import re
from collections.abc import Sequence

from phalanx.model.text.decoding import MAX_NAME

#: Maximum length of a cell: an annotation can have 256 KiB.
MOST = 2000
_SUSPECT = re.compile(r"[^\x20-\x7e]")
# Whitespace for Python, but line or record separators for other programs.
_BREAKS = frozenset("\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029")
_IN_JSON = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def harmless(text: str, most: int = MOST) -> str:
    """Return a text of the API as one line without control characters, of at most `most` characters.

    Line breaks and tabs become blanks. Other control characters, and marks that change the writing direction or
    join characters, are escaped (`\\x1b`).
    """
    if len(text) > most:
        text = text[: most - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return _SUSPECT.sub(_spelled, text)


def cells_of(row: Sequence[str], none: str) -> list[str]:
    """Return the cells of one row without control characters. Only the last cell can be longer than a name: it
    widens no other column."""
    lengths = [MAX_NAME] * (len(row) - 1) + [MOST]
    return [harmless(cell, length) or none for cell, length in zip(row, lengths, strict=False)]


def harmless_lines(text: str) -> str:
    """Return a text of several lines without control characters; line breaks and tabs are kept."""
    return "\n".join("\t".join(harmless(part, len(part)) for part in line.split("\t")) for line in text.split("\n"))


def harmless_json(text: str) -> str:
    """Return equal JSON text with the terminal's control characters escaped."""
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _spelled(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    # Any blank becomes a plain one; other characters can have any effect on a terminal.
    if character.isspace() and character not in _BREAKS:
        return " "
    return repr(character)[1:-1]
