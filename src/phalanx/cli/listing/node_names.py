"""Compressed lists of node names in Slurm's notation: `gpu-[01-16],login`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from phalanx.model.text.decoding import quoted

# Numbers in names; a longer sequence of digits is a hash.
_NUMBER = re.compile(r"[0-9]{1,9}")
_QUOTED = frozenset('[],"')
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MAX_NAMES = 1_000_000


def compress(names: Iterable[str]) -> str:
    """Merge node names that differ in one number of equal width to a compressed list such as `gpu-[01-16],login`.

    `expand` is the inverse; it returns sorted names without duplicates. The merged number is the one with the
    shortest result: the second in `rack2-node01` and `rack2-node02`, the first in `n1.cluster7` and
    `n2.cluster7`. Names with a comma or a bracket (never valid for nodes) are quoted.
    """
    unique = set(names)
    if len(unique) == 1:
        return _quoted(unique.pop())
    ordered = sorted(unique, key=_natural)
    groups: list[tuple[str, str]] = []
    frames: dict[tuple[str, str, int], list[str]] = {}
    for name in ordered:
        for frame in () if _QUOTED & set(name) else _frames(name):
            frames.setdefault(frame, []).append(name)
    merged: set[str] = set()
    # Frames with most names first; for equal counts the frame with the right-most number.
    for frame, members in sorted(frames.items(), key=lambda item: (-len(item[1]), -len(item[0][0]), item[0])):
        remaining = [name for name in members if name not in merged]
        if len(remaining) < 2:
            continue
        merged.update(remaining)
        before, after, width = frame
        numbers = sorted(int(name[len(before) : len(name) - len(after)]) for name in remaining)
        groups.append((f"{before}[{_ranges(numbers, width)}]{after}", remaining[0]))
    groups += [(_quoted(name), name) for name in ordered if name not in merged]
    groups.sort(key=lambda group: _natural(group[1]))
    return ",".join(text for text, _ in groups)


def expand(text: str) -> list[str]:
    """Return the names in a compressed list of node names, in its order. Raises ValueError."""
    names: list[str] = []
    for part in _parts(text):
        if part.startswith('"'):
            if len(part) < 2 or not part.endswith('"'):
                raise ValueError(f"{quoted(text)}: unmatched brackets or quotes")
            names.append(re.sub(r"\\(.)", r"\1", part[1:-1], flags=re.DOTALL))
            continue
        before, bracket, rest = part.partition("[")
        if not bracket:
            names.append(part)
            continue
        inside, closed, after = rest.partition("]")
        if not closed or {"[", "]"} & set(before + after):
            raise ValueError(f"{quoted(text)}: unmatched brackets")
        for part_range in inside.split(","):
            ends = _RANGE.fullmatch(part_range)
            if ends is None:
                raise ValueError(f"{quoted(text)}: invalid range {quoted(part_range)}; write N or N-M")
            first, last = int(ends[1]), int(ends[2] or ends[1])
            if not first <= last < first + _MAX_NAMES:
                raise ValueError(f"{quoted(text)}: invalid range {quoted(part_range)}; write N or N-M")
            names += [f"{before}{number:0{len(ends[1])}}{after}" for number in range(first, last + 1)]
    return names


def _frames(name: str) -> Iterator[tuple[str, str, int]]:
    """Yield (text before a number, text after it, width) for each number in a node name.

    09 and 10 have the same width. 9 and 10, without leading zeros, share the width 0.
    """
    for match in _NUMBER.finditer(name):
        before, after, digits = name[: match.start()], name[match.end() :], match[0]
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
    """Split `text` at commas outside of brackets and quotes."""
    parts, start, depth, index = [], 0, 0, 0
    while index < len(text):
        character = text[index]
        if character == '"' and depth == 0 and index == start:
            while (index := index + 1) < len(text) and text[index] != '"':
                index += text[index] == "\\"
        elif character in "[]":
            depth += 1 if character == "[" else -1
        elif character == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
        index += 1
    return [part for part in (*parts, text[start:]) if part]


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that orders node-2 before node-10."""
    return tuple(
        (0, int(piece), piece) if piece.isdecimal() and piece.isascii() and len(piece) < 19 else (1, 0, piece)
        for piece in re.split(r"([0-9]+)", name)
    )
