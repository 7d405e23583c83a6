"""Names of nodes in one cell, as Slurm writes them: `gpu-[01-16],login`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# What a name is made of; longer digits are a hash rather than a number.
_NUMBER = re.compile(r"[0-9]{1,9}")
_QUOTED = frozenset('[],"')
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MOST = 1_000_000


def compress(names: Iterable[str]) -> str:
    """The names in order, those together that differ in one number of the same width.

    `expand` gives them back, sorted and without repeats. The number is the one that makes the list shortest: in
    `rack2-node01` and `rack2-node02` the second, in `n1.cluster7` and `n2.cluster7` the first. Names with a comma
    or a bracket, which no node has, stand in quotes.
    """
    every = set(names)
    if len(every) == 1:
        return _quoted(every.pop())
    left = sorted(every, key=_natural)
    groups: list[tuple[str, str]] = []
    frames: dict[tuple[str, str, int], list[str]] = {}
    for name in left:
        for frame in () if _QUOTED & set(name) else _frames(name):
            frames.setdefault(frame, []).append(name)
    taken: set[str] = set()
    # The frame with most names first; of equals the one whose number stands furthest to the right.
    for frame, members in sorted(frames.items(), key=lambda each: (-len(each[1]), -len(each[0][0]), each[0])):
        free = [name for name in members if name not in taken]
        if len(free) < 2:
            continue
        taken.update(free)
        before, after, width = frame
        numbers = sorted(int(name[len(before) : len(name) - len(after)]) for name in free)
        groups.append((f"{before}[{_ranges(numbers, width)}]{after}", free[0]))
    groups += [(_quoted(name), name) for name in left if name not in taken]
    groups.sort(key=lambda each: _natural(each[1]))
    return ",".join(text for text, _ in groups)


def expand(text: str) -> list[str]:
    """The names of a compressed list, in its order. Raises ValueError."""
    found: list[str] = []
    for part in _parts(text):
        if part.startswith('"'):
            if len(part) < 2 or not part.endswith('"'):
                raise ValueError(f"{text!r}: brackets or quotes do not match")
            found.append(re.sub(r"\\(.)", r"\1", part[1:-1], flags=re.DOTALL))
            continue
        before, bracket, rest = part.partition("[")
        if not bracket:
            found.append(part)
            continue
        inside, closed, after = rest.partition("]")
        if not closed or {"[", "]"} & set(before + after):
            raise ValueError(f"{text!r}: brackets do not match")
        for each in inside.split(","):
            ends = _RANGE.fullmatch(each)
            if ends is None:
                raise ValueError(f"{text!r}: {each!r} is no range of numbers")
            first, last = int(ends[1]), int(ends[2] or ends[1])
            if not first <= last < first + _MOST:
                raise ValueError(f"{text!r}: {each!r} is no range of numbers")
            found += [f"{before}{number:0{len(ends[1])}}{after}" for number in range(first, last + 1)]
    return found


def _frames(name: str) -> Iterator[tuple[str, str, int]]:
    """(what is before a number, what is behind it, its width), for each number in the name.

    09 and 10 are of one width; so, as width 0, are 9 and 10, which have no leading zeros.
    """
    for found in _NUMBER.finditer(name):
        before, after, digits = name[: found.start()], name[found.end() :], found[0]
        yield before, after, len(digits)
        if digits[0] != "0" or digits == "0":
            yield before, after, 0


def _ranges(numbers: list[int], width: int) -> str:
    parts: list[str] = []
    first = last = numbers[0]
    for number in [*numbers[1:], -1]:
        if number == last + 1:
            last = number
            continue
        parts.append(f"{first:0{width}}" + (f"-{last:0{width}}" if last > first else ""))
        first = last = number
    return ",".join(parts)


def _quoted(name: str) -> str:
    if not _QUOTED & set(name):
        return name
    return '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'


def _parts(text: str) -> list[str]:
    """Split at commas that are neither in brackets nor in quotes."""
    parts, start, depth, at = [], 0, 0, 0
    while at < len(text):
        character = text[at]
        if character == '"' and depth == 0 and at == start:
            while (at := at + 1) < len(text) and text[at] != '"':
                at += text[at] == "\\"
        elif character in "[]":
            depth += 1 if character == "[" else -1
        elif character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return [part for part in (*parts, text[start:]) if part]


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """node-2 comes before node-10."""
    return tuple(
        (0, int(piece), piece) if piece.isdecimal() and piece.isascii() and len(piece) < 19 else (1, 0, piece)
        for piece in re.split(r"([0-9]+)", name)
    )
