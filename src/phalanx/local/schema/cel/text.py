"""``"%s of %d".format([a, b])``."""

from __future__ import annotations

import re
from typing import Any, Final

from phalanx.local.schema.cel.errors import EvalError
from phalanx.local.schema.cel.values import Duration, Timestamp, kind_of, show_double, show_duration, show_timestamp

_CLAUSE: Final = re.compile(r"%(?:%|(?:\.(\d+))?([a-zA-Z]))|%")


def format_text(template: str, args: list[Any]) -> str:
    """The template with its clauses (s d f e b x X o) filled in; EvalError when they do not fit the arguments."""
    rest = iter(args)

    def fill(match: re.Match[str]) -> str:
        if match.group() == "%%":
            return "%"
        letter = match[2]
        if letter is None:
            raise EvalError('could not parse formatting clause: unrecognized formatting clause "%"')
        try:
            value = next(rest)
        except StopIteration:
            raise EvalError("index out of range in format arguments") from None
        digits = int(match[1]) if match[1] else 6
        return _clause(letter, value, digits)

    text = _CLAUSE.sub(fill, template)
    if next(rest, rest) is not rest:
        raise EvalError(f"too many arguments supplied to string.format (expected fewer than {len(args)})")
    return text


def _clause(letter: str, value: Any, digits: int) -> str:
    kind = kind_of(value)
    if letter == "s":
        return shown(value)
    if letter == "d" and kind in ("int", "uint"):
        return str(int(value))
    if letter in "fe" and kind in ("double", "int", "uint"):
        number = float(value)
        if letter == "f":
            return f"{number:.{digits}f}"
        return re.sub(r"e([+-])(\d)$", r"e\g<1>0\2", f"{number:.{digits}e}")
    if letter == "b" and kind in ("int", "uint", "bool"):
        return f"{int(value):b}"
    if letter in "xX":
        if kind in ("int", "uint"):
            return f"{int(value):{letter}}"
        if kind in ("string", "bytes"):
            raw = value.encode() if kind == "string" else value
            return str(raw.hex()) if letter == "x" else str(raw.hex().upper())
    if letter == "o" and kind in ("int", "uint"):
        return f"{int(value):o}"
    raise EvalError(f'unrecognized formatting clause "{letter}" for a value of type {kind}')


def shown(value: Any) -> str:
    """A value as ``%s`` prints it."""
    kind = kind_of(value)
    if kind == "string":
        return str(value)
    if kind == "bool":
        return "true" if value else "false"
    if kind == "null_type":
        return "null"
    if kind == "double":
        return show_double(value)
    if kind == "bytes":
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, Duration):
        return show_duration(value)
    if isinstance(value, Timestamp):
        return show_timestamp(value)
    if kind == "list":
        return "[" + ", ".join(map(shown, value)) + "]"
    if kind == "map":
        pairs = sorted((shown(key), shown(item)) for key, item in value.items())
        return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"
    if kind == "type":
        return str(value.name)
    return str(value)
