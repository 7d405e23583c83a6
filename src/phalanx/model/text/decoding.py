"""The one decoder of JSON and numbers that others wrote: with limits, in linear time, and with one error each.

Python's own limits are met as exceptions that nobody expects (RecursionError for deep JSON, ValueError for an int
of more than 4,300 digits), and below them its work grows with the square of the digits. So everything that comes
from an object, an annotation, an answer or a file is read here, or bounded in length before it is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, overload

import msgspec

# Levels of lists and objects. Objects that we read have some twenty; trees of quotas have two per level.
MAX_DEPTH = 200
# Characters of one number, duration or moment of time. Leading zeros are legal, endless ones are not worth reading.
MAX_NUMBER = 64
# Characters of a name in the API.
MAX_NAME = 253
# Between the parts of a message: what is wrong; what helps.
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
    """JSON as a `kind`, at most `MAX_DEPTH` levels deep. Raises msgspec.DecodeError, whatever is wrong with it."""
    if nested_too_deep(text):
        raise msgspec.DecodeError(f"it is nested more than {MAX_DEPTH} levels deep")
    return decoded(_decoder_of(kind), text)


@cache
def _decoder_of(kind: Any) -> _Decoder[Any]:
    """To make one takes longer than to read a small object with it."""
    return msgspec.json.Decoder(kind).decode


def decoded(decode: _Decoder[T], text: bytes | str) -> T:
    """What a decoder of msgspec's makes of a text that is as it came. Raises msgspec.DecodeError.

    For typed decoders: what they pass over may be nested as deep as it likes, but for Python's own limit.
    """
    try:
        return decode(text)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deep") from None
    except UnicodeError as error:
        raise msgspec.DecodeError(f"it is no UTF-8: {error.reason}") from None  # type: ignore[attr-defined]


def decode_loosely(raw: bytes) -> Any:
    """JSON of which a part is beyond the limits: that part is a text, so that whoever reads its field can name it.

    Raises msgspec.DecodeError for what is no JSON.
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
    """Whether lists and objects lie deeper in each other than `MAX_DEPTH`. Text that is no JSON may be either."""
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
    """Where the lists and objects of one level of a JSON text begin and end, and which bracket they lie in.

    The outermost value is at level 1. Walks over the text without recursion: for text that no decoder takes.
    """
    found: list[tuple[int, int, bytes]] = []
    around: list[bytes] = []
    begin = 0
    for token in _NEXT.finditer(raw):
        sign = token[0]
        if sign in (b"[", b"{"):
            around.append(sign)
            if len(around) == level:
                begin = token.start()
        elif sign in (b"]", b"}") and around:
            if len(around) == level:
                found.append((begin, token.end(), around[-2] if level > 1 else b""))
            around.pop()
    if len(around) >= level:  # it is cut off
        found.append((begin, len(raw), around[level - 2] if level > 1 else b""))
    return found


def shallow(raw: bytes, level: int, instead: bytes = b"null") -> bytes:
    """A JSON text with something else in the place of each list and object at this level."""
    pieces, at = [], 0
    for begin, end, _ in parts_at(raw, level):
        pieces += [raw[at:begin], instead]
        at = end
    return b"".join((*pieces, raw[at:]))


def parse_whole(text: str, least: int = -(2**63), most: int = 2**63 - 1) -> int | None:
    """A whole number in decimal ASCII digits with or without a sign; None for anything else or out of range."""
    if len(text) > MAX_NUMBER or not _WHOLE.fullmatch(text):
        return None
    value = int(text)
    return value if least <= value <= most else None


def parse_float(text: str) -> float | None:
    """A finite number in any spelling of Python's; None for anything else."""
    if len(text) > MAX_NUMBER:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def quoted(value: object) -> str:
    """A value as a message quotes it: its repr, cut to a readable length; never raises. Nothing in it looks like
    the end of a part of the message."""
    if isinstance(value, str):
        return _in_one_part(repr(value)) if len(value) <= 80 else f"{_in_one_part(repr(value[:77]))}..."
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def legible(name: str) -> str:
    """A name that anybody may have chosen, as messages show it: on one line, and no longer than names are."""
    if len(name) > MAX_NAME:
        return f"{legible(name[:MAX_NUMBER])}..."
    return name if name.isprintable() and _SEPARATOR not in name else _in_one_part(repr(name)[1:-1])


def _in_one_part(text: str) -> str:
    return text.replace(_SEPARATOR, ";\\x20")
