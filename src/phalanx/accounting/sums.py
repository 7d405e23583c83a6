"""Usage (resource amounts times seconds) as exact integers. They exceed 63 bits (a day of a large cluster's bytes
does), so each is stored as two numbers, which databases can add separately."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

import msgspec

DAY = 86_400
_BITS = 32
_MASK = (1 << _BITS) - 1

_PARTS = msgspec.json.Decoder(list[tuple[int, int | None, dict[str, int]]])

#: (from, until, amounts); `until` is None while the part lasts.
Part = tuple[int, int | None, Mapping[str, int]]


def split(number: int) -> tuple[int, int]:
    """Split a number >= 0 into the two stored numbers (high, low)."""
    return number >> _BITS, number & _MASK


def joined(high: int, low: int) -> int:
    """Join the two stored numbers of a sum; each can itself be a sum."""
    return (int(high) << _BITS) + int(low)


def encode_parts(parts: Iterable[Part]) -> str:
    return json.dumps([[begin, end, dict(amounts)] for begin, end, amounts in parts], separators=(",", ":"))


def decode_parts(text: str) -> list[tuple[int, int | None, dict[str, int]]]:
    return _PARTS.decode(text)


def usage_within(parts: Iterable[Part], begin: int, end: int) -> Iterator[tuple[str, int]]:
    """Yield (resource, amount times seconds) of the usage within [begin, end); a part without an end lasts until
    `end`."""
    for since, until, amounts in parts:
        seconds = min(end, end if until is None else until) - max(begin, since)
        if seconds > 0:
            for resource, amount in amounts.items():
                yield resource, amount * seconds


def usage_by_day(parts: Iterable[Part]) -> dict[tuple[int, str], int]:
    """Return the usage of each resource on each day (since the epoch), in amount times seconds, for parts that have
    ended."""
    sums: dict[tuple[int, str], int] = {}
    for since, until, amounts in parts:
        assert until is not None
        for day in range(since // DAY, (until - 1) // DAY + 1):
            seconds = min(until, (day + 1) * DAY) - max(since, day * DAY)
            if seconds > 0:
                for resource, amount in amounts.items():
                    sums[day, resource] = sums.get((day, resource), 0) + amount * seconds
    return sums
