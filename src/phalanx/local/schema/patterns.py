"""Regular expressions as Go's regexp package reads them, for Python's matcher.

The API server compiles ``pattern`` and the patterns of rules with Go's package. The dialects differ where it
matters: Go knows no lookaround, no backreferences and no possessive repetition, its classes are ASCII, ``$`` is the
very end, flags may stand anywhere, and it knows ``\\z``, ``\\pL``, ``\\Q...\\E`` and POSIX classes. So a pattern is
read by Go's published grammar and written anew; what Go refuses is refused in Go's words.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache
from typing import Final

Ranges = list[tuple[int, int]]


class PatternError(ValueError):
    """The text is no regular expression; the message is the one of Go's regexp.Compile."""

    def __init__(self, problem: str, text: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{text}`")


@lru_cache(maxsize=1024)
def compile_pattern(text: str) -> re.Pattern[str]:
    """A Go regular expression as a Python one; PatternError when it is none."""
    return re.compile(_Reader(text).whole())


#: Go's limits on ``{n,m}`` (nested ones multiply) and, far below its own, on nested groups.
_MAX_REPEAT: Final = 1000
_MAX_DEPTH: Final = 100
_LAST: Final = sys.maxunicode
_REPEAT: Final = re.compile(r"\{(0|[1-9][0-9]*)(?:(,)(0|[1-9][0-9]*)?)?\}")
_NAMED: Final = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>")
_FLAGS: Final = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_SIMPLE: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_DIGIT: Final = [(0x30, 0x39)]
_SPACE: Final = [(0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)]
_WORD: Final = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_PERL: Final = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX: Final[dict[str, Ranges]] = {
    "alnum": [(0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)],
    "alpha": [(0x41, 0x5A), (0x61, 0x7A)],
    "ascii": [(0x00, 0x7F)],
    "blank": [(0x09, 0x09), (0x20, 0x20)],
    "cntrl": [(0x00, 0x1F), (0x7F, 0x7F)],
    "digit": _DIGIT,
    "graph": [(0x21, 0x7E)],
    "lower": [(0x61, 0x7A)],
    "print": [(0x20, 0x7E)],
    "punct": [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)],
    "space": [(0x09, 0x0D), (0x20, 0x20)],
    "upper": [(0x41, 0x5A)],
    "word": _WORD,
    "xdigit": [(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)],
}


def _others(ranges: Ranges) -> Ranges:
    """The characters outside."""
    result, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            result.append((start, low - 1))
        start = max(start, high + 1)
    if start <= _LAST:
        result.append((start, _LAST))
    return result


#: How the names of a script's characters begin; Python knows the names but not the scripts.
_SCRIPTS: Final = {"Han": "CJK UNIFIED IDEOGRAPH"}


@lru_cache(maxsize=64)
def _unicode_class(name: str) -> tuple[tuple[int, int], ...] | None:
    """The characters of a general category (``L``, ``Lu``, ``Any``) or script; None when there is no such class."""
    if name == "Any":
        return ((0, _LAST),)
    begin = _SCRIPTS.get(name, name.upper().replace("_", " ") + " ")
    category = len(name) <= 2
    found: list[tuple[int, int]] = []
    for code in range(_LAST + 1):
        char = chr(code)
        inside = (
            unicodedata.category(char).startswith(name)
            if category
            else unicodedata.name(char, "").startswith(begin)
        )
        if not inside:
            continue
        if found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return tuple(found) or None


def _class(ranges: Ranges, *, negate: bool = False) -> str:
    if not ranges:
        return r"[\s\S]" if negate else r"[^\s\S]"
    inner = "".join(
        _member(low) if low == high else f"{_member(low)}-{_member(high)}" for low, high in sorted(ranges)
    )
    return f"[{'^' if negate else ''}{inner}]"


def _member(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\U{code:08x}"


class _Reader:
    """One pass over a pattern. Methods return what to write, and how often the most repeated part may repeat."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.names: set[str] = set()

    def whole(self) -> str:
        written, _ = self._group(frozenset())
        if self.at < len(self.text):
            raise PatternError("unexpected )", self.text)
        return written

    def _group(self, flags: frozenset[str]) -> tuple[str, int]:
        """Reads up to the closing parenthesis (which stays) or the end."""
        text, parts, weight = self.text, [], 1
        atom, inner = "", 1
        # Where the repetition right before this place began.
        stacked = -1
        while self.at < len(text) and text[self.at] != ")":
            start, char = self.at, text[self.at]
            repeat = _REPEAT.match(text, start) if char == "{" else None
            if char in "*+?" or repeat is not None:
                atom, inner = self._repetition(atom, inner, repeat, flags, stacked)
                stacked = start
                continue
            stacked = -1
            found = _FLAGS.match(text, start) if char == "(" else None
            if found is not None and found[3] == ")":
                flags = self._flags(found, flags)
                continue
            parts.append(atom)
            weight = max(weight, inner)
            atom, inner = "", 1
            if char == "|":
                self.at += 1
                parts.append("|")
            elif char == "(":
                atom, inner = self._parenthesis(found, flags)
            else:
                atom = self._atom(flags)
        parts.append(atom)
        return "".join(parts), max(weight, inner)

    def _repetition(
        self, atom: str, weight: int, repeat: re.Match[str] | None, flags: frozenset[str], stacked: int
    ) -> tuple[str, int]:
        text, start = self.text, self.at
        self.at = repeat.end() if repeat is not None else start + 1
        plain = text[start : self.at]
        if repeat is not None:
            least = int(repeat[1])
            most = int(repeat[3]) if repeat[3] else (least if not repeat[2] else -1)
            if max(least, most) > _MAX_REPEAT or -1 < most < least:
                raise PatternError("invalid repeat count", plain)
        lazy = text.startswith("?", self.at)
        self.at += lazy
        if stacked >= 0:
            raise PatternError("invalid nested repetition operator", text[stacked : self.at])
        if not atom:
            raise PatternError("missing argument to repetition operator", text[start : self.at])
        if repeat is not None and max(least, most) >= 2:
            weight *= max(least, most)
            if weight > _MAX_REPEAT:
                raise PatternError("invalid repeat count", text[start : self.at])
        return f"(?:{atom}{plain}{'?' if lazy is not ('U' in flags) else ''})", weight

    def _flags(self, found: re.Match[str], flags: frozenset[str]) -> frozenset[str]:
        if not found[1] and not found[2] and found[3] == ")" and "-" in found[0]:
            raise PatternError("invalid or unsupported Perl syntax", found[0])
        self.at = found.end()
        return (flags | frozenset(found[1])) - frozenset(found[2] or "")

    def _parenthesis(self, found: re.Match[str] | None, flags: frozenset[str]) -> tuple[str, int]:
        text, start = self.text, self.at
        inner = flags
        if found is not None:
            inner = self._flags(found, flags)
        elif text.startswith(("(?P<", "(?<"), start) and not text.startswith(("(?<=", "(?<!"), start):
            named = _NAMED.match(text, start)
            if named is None or named[1] in self.names:
                end = text.find(">", start)
                raise PatternError("invalid named capture", text[start : end + 1] if end >= 0 else text[start:])
            self.names.add(named[1])
            self.at = named.end()
        elif text.startswith("(?", start):
            bad = start + 2
            while bad < len(text) and text[bad] in "imsU-":
                bad += 1
            raise PatternError("invalid or unsupported Perl syntax", text[start : bad + 1])
        else:
            self.at = start + 1
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise PatternError("expression nests too deeply", text)
        written, weight = self._group(inner)
        self.depth -= 1
        if not text.startswith(")", self.at):
            raise PatternError("missing closing )", text)
        self.at += 1
        return f"(?:{written})", weight

    def _atom(self, flags: frozenset[str]) -> str:
        char = self.text[self.at]
        if char == "[":
            return _folded(self._brackets(), flags)
        if char == "\\":
            return self._escaped(flags)
        self.at += 1
        if char == ".":
            return r"[\s\S]" if "s" in flags else r"[^\n]"
        if char == "^":
            return "(?m:^)" if "m" in flags else r"(?:\A)"
        if char == "$":
            return "(?m:$)" if "m" in flags else r"(?:\Z)"
        return _folded(re.escape(char), flags)

    def _escaped(self, flags: frozenset[str]) -> str:
        text, start = self.text, self.at
        following = text[start + 1 : start + 2]
        if following == "Q":
            end = text.find("\\E", start + 2)
            literal = text[start + 2 : end if end >= 0 else len(text)]
            self.at = end + 2 if end >= 0 else len(text)
            # A repetition after the quotation is about its last character.
            if not literal:
                return "(?:)"
            return "".join(_folded(re.escape(char), flags) for char in literal[:-1]) + _folded(
                re.escape(literal[-1]), flags
            )
        anchor = {"A": r"(?:\A)", "z": r"(?:\Z)", "b": r"(?a:\b)", "B": r"(?a:\B)"}.get(following)
        if anchor is not None:
            self.at += 2
            return anchor
        ranges = self._escaped_class()
        if ranges is not None:
            return _folded(_class(ranges), flags)
        return _folded(re.escape(chr(self._escaped_char())), flags)

    def _escaped_class(self) -> Ranges | None:
        """Reads ``\\d`` and its like, and ``\\pL``; None when there is something else."""
        text, start = self.text, self.at
        following = text[start + 1 : start + 2]
        if following and following in "dswDSW":
            self.at += 2
            ranges = _PERL[following.lower()]
            return _others(ranges) if following.isupper() else list(ranges)
        if not following or following not in "pP":
            return None
        if text.startswith("{", start + 2):
            end = text.find("}", start)
            if end < 0:
                raise PatternError("invalid character class range", text[start:])
            name, self.at = text[start + 3 : end], end + 1
        else:
            name, self.at = text[start + 2 : start + 3], start + 3
        negate = (following == "P") is not name.startswith("^")
        found = _unicode_class(name.removeprefix("^")) if name.removeprefix("^") else None
        if found is None:
            raise PatternError("invalid character class range", text[start : self.at])
        return _others(list(found)) if negate else list(found)

    def _escaped_char(self) -> int:
        text, start = self.text, self.at
        if start + 1 >= len(text):
            raise PatternError("trailing backslash at end of expression", "")
        char = text[start + 1]
        match: re.Match[str] | None = None
        if char in "01234567":
            # One digit alone would be a reference to a group, which Go does not have.
            match = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}").match(text, start + 1)
            if match is not None:
                self.at = match.end()
                return int(match[0], 8)
        elif char == "x":
            match = re.compile(r"\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2})").match(text, start + 2)
            code = int(match[1] or match[2], 16) if match is not None else _LAST + 1
            if match is not None and code <= _LAST:
                self.at = match.end()
                return code
        elif char in _SIMPLE:
            self.at += 2
            return _SIMPLE[char]
        elif char.isascii() and not char.isalnum():
            self.at += 2
            return ord(char)
        raise PatternError("invalid escape sequence", text[start : start + 2])

    def _brackets(self) -> str:
        text, start = self.text, self.at
        negate = text.startswith("^", start + 1)
        self.at += 1 + negate
        ranges: Ranges = []
        first = True
        while not text.startswith("]", self.at) or first:
            first = False
            if self.at >= len(text):
                raise PatternError("missing closing ]", text[start:])
            if text.startswith("[:", self.at) and (end := text.find(":]", self.at + 2)) >= 0:
                name = text[self.at + 2 : end]
                if name.removeprefix("^") not in _POSIX:
                    raise PatternError("invalid character class range", text[self.at : end + 2])
                named = _POSIX[name.removeprefix("^")]
                ranges.extend(_others(named) if name.startswith("^") else named)
                self.at = end + 2
                continue
            known = self._escaped_class() if text[self.at] == "\\" else None
            if known is not None:
                ranges.extend(known)
                continue
            begin = self.at
            low = high = self._class_char(start)
            if text.startswith("-", self.at) and self.at + 1 < len(text) and text[self.at + 1] != "]":
                self.at += 1
                high = self._class_char(start)
                if high < low:
                    raise PatternError("invalid character class range", text[begin : self.at])
            ranges.append((low, high))
        self.at += 1
        return _class(ranges, negate=negate)

    def _class_char(self, start: int) -> int:
        if self.at >= len(self.text):
            raise PatternError("missing closing ]", self.text[start:])
        if self.text[self.at] == "\\":
            return self._escaped_char()
        self.at += 1
        return ord(self.text[self.at - 1])


def _folded(written: str, flags: frozenset[str]) -> str:
    return f"(?i:{written})" if "i" in flags else written
