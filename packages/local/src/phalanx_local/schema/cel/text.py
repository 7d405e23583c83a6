"""CEL function ``"%s of %d".format([a, b])``: evaluation, and checks of constant templates at compile time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from phalanx_local.schema.cel.errors import EvalError
from phalanx_local.schema.cel.values import (
    FULL_NAMES,
    kind_of,
    show_double,
    show_duration,
    show_timestamp,
)

#: Number of decimals of %f and %e.
_DIGITS: Final = 6
#: Floating point values that %f and %e also accept as words.
_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_SUPERSCRIPT: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_TEXTUAL: Final = frozenset(
    [
        "list",
        "map",
        "int",
        "uint",
        "double",
        "bool",
        "string",
        "timestamp",
        "bytes",
        "duration",
        "type",
        "null_type",
    ]
)
_INTEGERS: Final = frozenset(("int", "uint"))
_DOUBLES: Final = frozenset(("double",))
_DOUBLE_RULE: Final = "{} clause can only be used on doubles"
#: Accepted kinds of each clause letter, and the error for other kinds.
_RULES: Final[dict[str, tuple[frozenset[str], str]]] = {
    "s": (
        _TEXTUAL,
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
        "and timestamps",
    ),
    "d": (_INTEGERS, "decimal clause can only be used on integers"),
    "f": (_DOUBLES, _DOUBLE_RULE.format("fixed-point")),
    "e": (_DOUBLES, _DOUBLE_RULE.format("scientific")),
    "b": (_INTEGERS | {"bool"}, "only integers and bools can be formatted as binary"),
    "x": (
        _INTEGERS | {"string", "bytes"},
        "only integers, byte buffers, and strings can be formatted as hex",
    ),
    "o": (_INTEGERS, "octal clause can only be used on integers"),
}


def format_text(template: str, args: list[Any]) -> str:
    """Replace the clauses (%s %d %f %e %b %x %X %o) of a template by its arguments; raise EvalError if they do not
    fit."""
    parts: list[str] = []
    for literal, letter, digits, place in _clauses(template, len(args)):
        parts.append(literal)
        if letter:
            _allow(letter, kind_of(args[place]), args[place])
            parts.append(_PRINTERS[letter](args[place], digits))
    return "".join(parts)


def check_format(template: str, kinds: Sequence[str]) -> tuple[str, int]:
    """Return the error of a constant format template for arguments of these types, and the argument's index (-1:
    all); "" if none."""
    place = -1
    try:
        for _, letter, _, place in _clauses(template, len(kinds)):
            kind = kinds[place] if letter else "dyn"
            if kind != "dyn" and not (letter in "fe" and kind == "string"):
                _allow(letter, kind)
    except EvalError as error:
        return str(error), place if str(error).startswith("error during") else -1
    if len(kinds) > place + 1:
        return f"too many arguments supplied to string.format (expected {place + 1}, got {len(kinds)})", -1
    return "", -1


def _clauses(template: str, count: int) -> Iterator[tuple[str, str, int, int]]:
    """Yield each clause of a format template: text before it, letter, digits, index of its argument; at last the
    remaining text."""
    at, place, literal = 0, 0, ""
    while at < len(template):
        mark = template.find("%", at)
        if mark < 0:
            break
        literal += template[at:mark]
        if template.startswith("%%", mark):
            literal += "%"
            at = mark + 2
            continue
        if mark + 1 >= len(template):
            raise EvalError("unexpected end of string")
        if place >= count:
            raise EvalError(f"index {place} out of range")
        at, digits = _precision(template, mark + 1)
        letter = template[at]
        if letter != "X" and letter not in _RULES:
            raise EvalError(f'could not parse formatting clause: unrecognized formatting clause "{letter}"')
        at += 1
        yield literal, letter, digits, place
        place += 1
        literal = ""
    yield literal + template[at:], "", 0, place - 1


def _precision(template: str, at: int) -> tuple[int, int]:
    if template[at] != ".":
        return at, _DIGITS
    end = at + 1
    while end < len(template) and template[end] in "0123456789":
        end += 1
    problem = ""
    if end >= len(template):
        problem = "could not find end of precision specifier"
    elif end == at + 1:
        problem = 'error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax'
    if problem:
        raise EvalError(f"could not parse formatting clause: error while parsing precision: {problem}")
    return end, int(template[at + 1 : end])


def _allow(letter: str, kind: str, value: Any = None) -> None:
    kinds, words = _RULES[letter.lower()]
    if kind not in kinds and not (letter in "fe" and kind == "string" and value in _WORDS):
        raise EvalError(f"error during formatting: {words}, was given {FULL_NAMES.get(kind, kind)}")


def _special(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "" if math.isfinite(number) else ("∞" if number > 0 else "-∞")


def _fixed(value: Any, digits: int) -> str:
    number = _WORDS[value] if isinstance(value, str) else float(value)
    return _special(number) or f"{number:,.{digits}f}"


def _scientific(value: Any, digits: int) -> str:
    number = _WORDS[value] if isinstance(value, str) else float(value)
    if _special(number):
        return _special(number)
    mantissa, _, exponent = f"{number:.{_DIGITS}e}".partition("e")
    power = int(exponent)
    shown_power = f"{'-' if power < 0 else ''}{abs(power):02d}".translate(_SUPERSCRIPT)
    # As in cel-go, the precision of this clause is the width of the whole text.
    return f"{mantissa}×10{shown_power}".rjust(digits)


def _hex(value: Any, digits: int) -> str:
    if isinstance(value, int):
        return f"{value:x}"
    return (value.encode() if isinstance(value, str) else value).hex()


_PRINTERS: Final[dict[str, Callable[[Any, int], str]]] = {
    "s": lambda value, digits: shown(value),
    "d": lambda value, digits: str(int(value)),
    "f": _fixed,
    "e": _scientific,
    "b": lambda value, digits: f"{int(value):b}",
    "x": _hex,
    "X": lambda value, digits: _hex(value, digits).upper(),
    "o": lambda value, digits: f"{int(value):o}",
}


def shown(value: Any) -> str:
    """Format a CEL value like the clause ``%s``; raise EvalError for values without a text form."""
    kind = kind_of(value)
    if kind == "list":
        return "[" + ", ".join(map(_inner, value)) + "]"
    if kind == "map":
        pairs = sorted((_inner(key), _inner(item)) for key, item in value.items())
        return "{" + ", ".join(f"{key}:{item}" for key, item in pairs) + "}"
    if kind == "null_type":
        return "null"
    if kind == "double":
        return show_double(value)
    if kind == "duration":
        return show_duration(value)
    if kind == "timestamp":
        return show_timestamp(value)
    if kind == "bytes":
        return bytes(value).decode("utf-8", "replace")
    if kind == "bool":
        return "true" if value else "false"
    if kind == "type":
        return str(value.name)
    _allow("s", kind)
    return str(value)


def _inner(value: Any) -> str:
    """Format a CEL value inside a list or map as an expression."""
    kind = kind_of(value)
    if kind == "string":
        return quoted(value)
    if kind == "bytes":
        return "b" + quoted(shown(value))
    if kind == "double":
        if math.isfinite(value):
            return f"{value:.{_DIGITS}f}"
        return quoted("NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf")
    if kind in ("duration", "timestamp"):
        return f"{kind}({quoted(shown(value))})"
    return shown(value)


_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def quoted(text: str) -> str:
    """Quote a string in double quotes with Go's escapes."""
    parts = []
    for char in text:
        if char in _ESCAPES:
            parts.append(_ESCAPES[char])
        elif char.isprintable():
            parts.append(char)
        else:
            code = ord(char)
            parts.append(
                f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
            )
    return '"' + "".join(parts) + '"'
