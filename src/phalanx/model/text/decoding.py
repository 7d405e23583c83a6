"""Decoder of JSON and numbers from other programs, with limits, in linear time, and one exception type each.

Python's own limits raise unexpected exceptions (RecursionError for deep JSON, ValueError for an int of more than
4,300 digits), and below these limits parsing takes quadratic time. So all text of objects, annotations, responses
and files is decoded here, or its length is limited before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, overload

import msgspec

# Maximum nesting of lists and objects. Known objects have about twenty levels; trees of quotas have two per
# level.
MAX_DEPTH = 200
# Maximum number of characters of a number, duration or time. Leading zeros are valid, but not endless ones.
MAX_NUMBER = 64
# Maximum number of characters of a name in the API.
MAX_NAME = 253
# Separator of the parts of a message: the problem; the fix.
_SEPARATOR = "; "

_TOO_DEEP = b'"(nested too deep)"'

_NEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)

T = TypeVar("T")
_Decoder = Callable[[bytes | str], T]


@overload
def decode_json(text: bytes | str) -> Any: ...
@overload
def decode_json(text: bytes | str, kind: type[T]) -> T: ...
def decode_json(text: bytes | str, kind: Any = Any) -> Any:
    """Decode JSON to a value of type `kind`, at most `MAX_DEPTH` levels deep. Raise msgspec.DecodeError for any
    error."""
    if nested_too_deep(text):
        raise msgspec.DecodeError(f"it is nested more than {MAX_DEPTH} levels deep")
    return decoded(_decoder_of(kind), text)


@cache
def _decoder_of(kind: Any) -> _Decoder[Any]:
    """Return a cached decoder for a type, because its creation takes longer than decoding a small object."""
    return msgspec.json.Decoder(kind).decode


def decoded(decode: _Decoder[T], text: bytes | str) -> T:
    """Decode an unchecked text with a decoder of msgspec. Raise msgspec.DecodeError for any error.

    For typed decoders: the nesting of skipped fields is limited only by Python.
    """
    try:
        return decode(text)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deep") from None
    except UnicodeError as error:
        raise msgspec.DecodeError(f"it is no UTF-8: {error.reason}") from None  # type: ignore[attr-defined]


def decode_loosely(raw: bytes) -> Any:
    """Decode JSON; values beyond the limits become texts, so that the reader of a field can report them.

    Raises msgspec.DecodeError for other texts than JSON.
    """
    try:
        return json.loads(
            shallow(raw, MAX_DEPTH + 1, _TOO_DEEP), parse_int=_int, parse_float=_float, parse_constant=str
        )
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError(f"it is no JSON: {error}") from None


def _int(digits: str) -> int | str:
    return int(digits) if len(digits) <= MAX_NUMBER else digits


def _float(text: str) -> float | str:
    value = float(text)
    return value if abs(value) < float("inf") else text


def nested_too_deep(text: bytes | str) -> bool:
    """Return whether lists and objects are nested deeper than `MAX_DEPTH`. The result for other texts than JSON
    is arbitrary.
    """
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for sign in _STRING.sub(b"", raw).translate(None, _NO_BRACKETS):
        depth += 1 if sign in b"[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False


def parts_at(raw: bytes, level: int) -> list[tuple[int, int, bytes]]:
    """Return start, end and enclosing bracket of the lists and objects at one level of a JSON text.

    The outermost value is at level 1. The function does not recurse, for texts that no decoder accepts.
    """
    spans: list[tuple[int, int, bytes]] = []
    brackets: list[bytes] = []
    begin = 0
    for token in _NEXT.finditer(raw):
        sign = token[0]
        if sign in (b"[", b"{"):
            brackets.append(sign)
            if len(brackets) == level:
                begin = token.start()
        elif sign in (b"]", b"}") and brackets:
            if len(brackets) == level:
                spans.append((begin, token.end(), brackets[-2] if level > 1 else b""))
            brackets.pop()
    if len(brackets) >= level:  # the text is truncated
        spans.append((begin, len(raw), brackets[level - 2] if level > 1 else b""))
    return spans


def shallow(raw: bytes, level: int, instead: bytes = b"null") -> bytes:
    """Return a JSON text in which `instead` replaces each list and object at one level of nesting."""
    pieces, at = [], 0
    for begin, end, _ in parts_at(raw, level):
        pieces += [raw[at:begin], instead]
        at = end
    return b"".join((*pieces, raw[at:]))


def parse_whole(text: str, least: int = -(2**63), most: int = 2**63 - 1) -> int | None:
    """Parse a whole number in ASCII digits with an optional sign; return None for other texts or out of range."""
    if len(text) > MAX_NUMBER or not _WHOLE.fullmatch(text):
        return None
    value = int(text)
    return value if least <= value <= most else None


def parse_float(text: str) -> float | None:
    """Parse a finite number in Python's notation; return None for other texts."""
    if len(text) > MAX_NUMBER:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def quoted(value: object) -> str:
    """Quote a value for a message, shortened to a readable length. Never raise.

    A plain text is in single quotes, any other value is JSON: users do not read literals of Python.

    The result does not contain the separator of a message's parts.
    """
    if isinstance(value, str):
        return (
            _in_one_part(_quoted_text(value))
            if len(value) <= 80
            else f"{_in_one_part(_quoted_text(value[:77]))}..."
        )
    # A number of numpy has a method for the number itself.
    scalar = getattr(value, "item", None)
    try:
        text = json.dumps(scalar() if callable(scalar) else value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError, TypeError):
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def _quoted_text(text: str) -> str:
    plain = text.isprintable() and "'" not in text
    return f"'{text}'" if plain else json.dumps(text, ensure_ascii=not text.isprintable())


def legible(name: str) -> str:
    """Return a user-chosen name for a message: on one line, and shortened to the length of a name."""
    if len(name) > MAX_NAME:
        return f"{legible(name[:MAX_NUMBER])}..."
    return name if name.isprintable() and _SEPARATOR not in name else _in_one_part(repr(name)[1:-1])


def _in_one_part(text: str) -> str:
    return text.replace(_SEPARATOR, ";\\x20")
