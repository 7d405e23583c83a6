"""Text of the API on a terminal: whoever may name an object must not steer the reader's screen."""

from __future__ import annotations

import re
import unicodedata

#: Longer cells are cut: an annotation may have 256 KiB.
MOST = 2000
# Whatever is neither printed nor a blank: C0 and C1, marks that turn or join writing, separators, lone surrogates.
_SUSPECT = re.compile(r"[^\x20-\x7e]")
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_IN_JSON = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def harmless(text: str, most: int = MOST) -> str:
    """One line without control characters: line breaks and tabs are blanks, others are spelled out (`\\x1b`)."""
    if len(text) > most:
        text = text[: most - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return _SUSPECT.sub(_spelled, text)


def harmless_lines(text: str) -> str:
    """The same of whole answers, whose lines and tabs stay."""
    return "\n".join("\t".join(harmless(part, len(part)) for part in line.split("\t")) for line in text.split("\n"))


def harmless_json(text: str) -> str:
    """JSON whose strings have escapes for what a terminal would act upon; it means the same."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _spelled(found: re.Match[str]) -> str:
    character = found[0]
    if character in "\n\r\t":
        return " "
    if unicodedata.category(character) not in _HARMFUL:
        return character
    return character.encode("ascii", "backslashreplace").decode()
