"""Arguments of job plugins, parsed like Volcano with Go's package `flag`.

https://pkg.go.dev/flag#hdr-Command_line_flag_syntax : `-port 22` in two arguments, `-port=22`, `--port=22`; a
boolean flag is set by its name alone, and takes a value only after `=`. Arguments after the first one that is no
flag are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from phalanx.jobs.plugins.plugin import JobPluginError

_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
# Bases by prefix; a number with a leading 0 is octal. Underscores are allowed between digits.
_NUMBER = re.compile(r"([+-]?)(0[xX]_?[0-9a-fA-F_]+|0[bB]_?[01_]+|0[oO]_?[0-7_]+|0_?[0-7_]*|[1-9][0-9_]*)")
_LONGEST_NUMBER = 80


class Flags:
    """Flag values that a job plugin's arguments set; `defaults` defines the flags and their types."""

    def __init__(self, plugin: str, arguments: Sequence[str], defaults: Mapping[str, str | int | bool]) -> None:
        self._values = dict(defaults)
        try:
            self._read(list(arguments))
        except ValueError as error:
            raise JobPluginError(
                f"plugin {plugin} flagset parse failed, err: {error}; supported flags: "
                + ", ".join(f"--{name}" for name in sorted(defaults))
            ) from None

    def text(self, name: str) -> str:
        return str(self._values[name])

    def number(self, name: str) -> int:
        return int(self._values[name])

    def is_set(self, name: str) -> bool:
        return bool(self._values[name])

    def _read(self, arguments: list[str]) -> None:
        while arguments:
            argument = arguments.pop(0)
            if len(argument) < 2 or argument[0] != "-" or argument == "--":
                return
            flag = argument[2:] if argument[1] == "-" else argument[1:]
            if flag[0] in "-=":
                raise ValueError(f"bad flag syntax: {argument}")
            name, equals, value = flag.partition("=")
            if name not in self._values:
                if name in ("h", "help"):
                    raise ValueError("flag: help requested")
                raise ValueError(f"flag provided but not defined: -{name}")
            if isinstance(self._values[name], bool):
                self._values[name] = _boolean(name, value) if equals else True
                continue
            if not equals:
                if not arguments:
                    raise ValueError(f"flag needs an argument: -{name}")
                value = arguments.pop(0)
            self._values[name] = _whole(name, value) if isinstance(self._values[name], int) else value


def _boolean(name: str, value: str) -> bool:
    if value not in _BOOLEANS:
        raise ValueError(f"invalid boolean value {_quoted(value)} for -{name}: parse error")
    return _BOOLEANS[value]


def _whole(name: str, value: str) -> int:
    match = _NUMBER.fullmatch(value) if len(value) <= _LONGEST_NUMBER else None
    digits = match[2] if match is not None else ""
    if not digits or "__" in digits or digits.endswith("_"):
        raise ValueError(f"invalid value {_quoted(value)} for flag -{name}: parse error")
    if len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567_":
        digits = f"0o{digits[1:]}"
    number = int(digits, 0)
    if match is not None and match[1] == "-":
        number = -number
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"invalid value {_quoted(value)} for flag -{name}: value out of range")
    return number


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
