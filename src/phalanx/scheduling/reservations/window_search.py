"""Search for the earliest common window of a unit: all its pods start together and run for their whole duration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Protocol

import msgspec
import numpy as np

from phalanx.cluster.accounts import ChargePath, add_amounts
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.scheduling.reservations.copy_counts import CountArray
from phalanx.scheduling.reservations.future import FutureMatrix
from phalanx.scheduling.reservations.timeline import FOREVER
from phalanx.scheduling.reservations.window import Part, RowArray, Share, Window

# Number of begins whose missing copies are counted in one step.
_BEGINS_AT_ONCE = 8


class AccountRoom(Protocol):
    """Check of account limits over a range of slots."""

    def allows(self, parts: Sequence[Part], begin: int, end: int) -> bool:
        """Return whether all charge paths can be charged for the parts from slot `begin` to `end`, beside their
        usage then."""


class FoundWindow(msgspec.Struct, frozen=True):
    """Result of a search. Without a `window`, no window exists until `lacking` more copies fit (0: unknown)."""

    window: Window | None
    lacking: int = 0


def earliest_window(
    future: FutureMatrix,
    parts: Sequence[Part],
    duration: int,
    accounts: AccountRoom,
    before: int = FOREVER,
    not_before: int = 0,
) -> FoundWindow:
    """Return the window of the first moment before `before` at which all parts fit for `duration` seconds (0: for
    ever).

    All parts share one moment: the latest of their own first moments is not enough. The scarcest part is placed
    first, each on the rows that it fills up best. `future` is unchanged afterwards.
    """
    ordered = list(parts)
    if len(ordered) > 1:
        ordered.sort(key=lambda part: (_scarcity(future, part), part.pod_class.number))
    begins, shorts = _candidates(future, ordered, duration, before, not_before)
    if not begins:
        return FoundWindow(None, _fewest(shorts))
    # Limits that allow the charges over all slots allow them over a part of these.
    allowed = len(begins) > 1 and accounts.allows(ordered, begins[0], len(future.line))
    # On one row, a slot with room for the duration is one where the part fits.
    shared = len(ordered) == 1 and not not_before and np.count_nonzero(ordered[0].rows) > 1
    known_shorts = _shorts(future, ordered[0], duration, begins) if shared else repeat(0, len(begins))
    lacking = FOREVER
    for begin, known_short in zip(begins, known_shorts, strict=True):
        start = max(future.line.edges[begin], not_before)
        end = future.line.covering(start + duration) if duration else FOREVER
        first, last = future.line.slots(start, end)
        if not allowed and not accounts.allows(ordered, first, last):
            lacking = 0
            continue
        if known_short > 0:
            lacking = min(lacking, known_short)
            continue
        shares, short = _place(future, ordered, start, end, first, last)
        if shares is not None:
            return FoundWindow(Window(start, end, shares, charges_of(parts)))
        lacking = min(lacking, short)
    return FoundWindow(None, min(lacking, _fewest(shorts)))


def _scarcity(future: FutureMatrix, part: Part) -> float:
    """Return the number of times that the part fits in the last slot, where the most is free."""
    return float(future.room(part.pod_class, part.rows)[-1]) / part.count


def _fewest(shorts: IntArray | None) -> int:
    """Return the smallest number of missing copies; 0 if unknown."""
    return int(shorts[shorts > 0].min(initial=FOREVER)) if shorts is not None else 0


def _candidates(
    future: FutureMatrix, parts: Sequence[Part], duration: int, before: int, not_before: int
) -> tuple[list[int], IntArray | None]:
    """Return the slots at which each part by itself has room for its duration, and the numbers of copies that a
    unit of one part lacks at each slot; None where they are unknown (several parts, or domains).
    """
    edges = future.line.moments
    open_slots = edges < before
    if not_before:
        open_slots[: max(0, int(np.searchsorted(edges, not_before, side="right")) - 1)] = False
    stretches = _stretches(edges, np.arange(len(edges)), duration)
    known = len(parts) == 1 and parts[0].domains is None
    shorts: IntArray | None = np.zeros(0, dtype=np.int64) if known else None
    for part in parts:
        if not np.count_nonzero(open_slots):
            break
        room = _with_end(future.room(part.pod_class, part.rows))
        short = part.count - np.minimum.reduceat(room, stretches)[::2]
        if known:
            shorts = short if before >= FOREVER and not not_before else short[open_slots]
        open_slots &= short <= 0
    for group in _by_domains(parts) if any(part.domains is not None for part in parts) else ():
        if group[0].domains is not None and open_slots.any():
            open_slots &= _open_in_a_domain(future, group, group[0].domains, stretches)
    return open_slots.nonzero()[0].tolist(), shorts


def _stretches(edges: IntArray, begins: RowArray, duration: int) -> RowArray:
    """Return the first slot and the end of the last slot of a use from each of `begins`, for `reduceat`."""
    stretches: RowArray = np.empty(2 * len(begins), dtype=np.intp)
    stretches[::2] = begins
    stretches[1::2] = (
        np.maximum(edges.searchsorted(edges[begins] + duration), begins + 1) if duration else len(edges)
    )
    return stretches


def _with_end(room: IntArray) -> IntArray:
    """Return the room in each slot, and in the time after the last one: `reduceat` needs one more."""
    extended = np.empty(len(room) + 1, dtype=np.int64)
    extended[:-1] = room
    extended[-1] = FOREVER
    return extended


def _shorts(future: FutureMatrix, part: Part, duration: int, begins: Sequence[int]) -> Iterator[int]:
    """Yield the number of copies that a part lacks at each of `begins`; 0 where that costs more than it saves."""
    if part.domains is not None or len(begins) < 2:
        yield from repeat(0, len(begins))
        return
    copies = future.copies(part.pod_class)
    for first in range(0, len(begins), _BEGINS_AT_ONCE):
        # A caller stops at the first begin that fits, which is often one of the first.
        chosen = np.array(begins[first : first + _BEGINS_AT_ONCE], dtype=np.intp)
        stretches = _stretches(future.line.moments, chosen, duration)
        yield from (part.count - _lasting(copies, part.rows, stretches)).tolist()


def _lasting(
    copies: CountArray,
    rows: BoolArray,
    stretches: RowArray,
    share: Share | None = None,
    first: int = 0,
    last: int = 0,
) -> IntArray:
    """Return the number of copies that stay free on the rows bool[N] together over each stretch of slots.

    The copies of a `share` count as free from slot `first` to `last`; no stretch begins there."""
    begins = stretches[::2]
    begin, end = int(begins.min()), int(stretches[1::2].max())
    # Most rows have no copy when a stretch begins, so none that lasts.
    (chosen,) = ((copies[begins].max(axis=0) > 0) & rows[: copies.shape[1]]).nonzero()
    lasting = np.zeros((end - begin + 1, len(chosen)), dtype=np.int64)
    lasting[:-1] = copies[begin:end, chosen]
    if share is not None:
        released = np.zeros(copies.shape[1], dtype=np.int64)
        released[share.rows] = share.counts
        lasting[first - begin : min(last, end) - begin] += released[chosen]
    least: IntArray = np.minimum.reduceat(lasting, stretches - begin, axis=0)[::2]
    together: IntArray = least.sum(axis=1, dtype=np.int64)
    return together


def missing_copies(future: FutureMatrix, part: Part, duration: int, window: Window) -> int | None:
    """Return the number of copies that a unit of one part lacks to start before its own `window`.

    None if it does not lack any, or if only a search without its window can tell. Nothing is changed: the copies of
    the window count as free."""
    if part.domains is not None or len(window.kept) != 1 or len(window.shares) != 1:
        return None
    share = window.shares[0]
    if share.pod_class is not part.pod_class:
        return None
    edges, (first, last) = future.line.moments, future.line.slots(window.start, window.end)
    begins = np.arange(int(edges.searchsorted(window.start)), dtype=np.intp)
    room = _with_end(future.room(part.pod_class, part.rows))
    room[first:last] += part.count
    short = part.count - np.minimum.reduceat(room, _stretches(edges, begins, duration))[::2]
    lacking = int(short[short > 0].min(initial=FOREVER))
    begins = begins[short <= 0]
    if len(begins):
        stretches = _stretches(edges, begins, duration)
        lasting = _lasting(future.copies(part.pod_class), part.rows, stretches, share, first, last)
        shortest = part.count - int(lasting.max())
        if shortest <= 0:
            return None
        lacking = min(lacking, shortest)
    return lacking


def _open_in_a_domain(
    future: FutureMatrix, parts: Sequence[Part], domains: IntArray, stretches: IntArray
) -> BoolArray:
    """Return bool[T]: the slots at which some domain has room for each part by itself for its duration."""
    fits: BoolArray = np.ones((len(stretches) // 2, int(domains.max(initial=0)) + 1), dtype=np.bool_)
    fits[:, 0] = False
    for part in parts:
        copies = future.copies(part.pod_class)
        room = _room_by_domain(copies * part.rows[: copies.shape[1]], domains)
        room = np.vstack([room, np.full(room.shape[1], FOREVER)])
        lasting: IntArray = np.minimum.reduceat(room, stretches, axis=0)[::2]
        np.logical_and(fits, lasting >= part.count, out=fits)
    open_in_domain: BoolArray = np.asarray(fits.any(axis=1), dtype=np.bool_)
    return open_in_domain


def _place(
    future: FutureMatrix, parts: Sequence[Part], start: int, end: int, first: int, last: int
) -> tuple[tuple[Share, ...] | None, int]:
    """Return the rows of all parts and 0; or None and the missing copies of the part that did not fit."""
    if len(parts) == 1 and parts[0].domains is None:
        share, short = _fill(future, parts[0], None, first, last)
        return (None if share is None else (share,)), short
    shares: list[Share] = []
    tried: list[Window] = []
    try:
        for group in _by_domains(parts):
            group_shares: list[Share] | None = None
            short = 0
            for limit in _limits(future, group, first, last):
                mark = len(tried)
                group_shares, short = [], 0
                for part in group:
                    share, short = _fill(future, part, limit, first, last)
                    if share is None:
                        group_shares = None
                        break
                    group_shares.append(share)
                    if len(parts) > 1:
                        tried.append(Window(start, end, (share,)))
                        future.take(tried[-1])
                if group_shares is not None:
                    break
                _give_back(future, tried, mark)
            if group_shares is None:
                return None, short
            shares += group_shares
        return tuple(shares), 0
    finally:
        _give_back(future, tried, 0)


def _by_domains(parts: Sequence[Part]) -> list[list[Part]]:
    """Return the parts grouped by shared domains, in their order; each part without domains is its own group."""
    groups: dict[int, list[Part]] = {}
    for part in parts:
        groups.setdefault(id(part if part.domains is None else part.domains), []).append(part)
    return list(groups.values())


def _limits(future: FutureMatrix, parts: Sequence[Part], first: int, last: int) -> Iterator[BoolArray | None]:
    """Yield bool[N] of each domain in which each part fits by itself, the fullest first; None once without
    domains."""
    domains = parts[0].domains
    if domains is None:
        yield None
        return
    count = int(domains.max(initial=0)) + 1
    fits, room = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.int64)
    fits[0] = False
    for part in parts:
        sums = _room_by_domain(_room(future, part, first, last)[None, :], domains)[0]
        fits &= sums >= part.count
        room += sums
    numbers = np.flatnonzero(fits)
    for number in numbers[np.lexsort((numbers, room[numbers]))].tolist():
        yield domains == number


def _room_by_domain(copies: IntArray | CountArray, domains: IntArray) -> IntArray:
    """Return int64[T, D], the copies that fit into each domain, from int64[T, N]."""
    domain_of_row = domains[: copies.shape[1]]
    order = np.argsort(domain_of_row, kind="stable")
    numbers, begins = np.unique(domain_of_row[order], return_index=True)
    totals = np.zeros((len(copies), int(domains.max(initial=0)) + 1), dtype=np.int64)
    if len(numbers):
        totals[:, numbers] = np.add.reduceat(copies[:, order], begins, axis=1, dtype=np.int64)
    return totals


def _give_back(future: FutureMatrix, tried: list[Window], mark: int) -> None:
    while len(tried) > mark:
        future.give_back(tried.pop())


def _fill(
    future: FutureMatrix, part: Part, limit: BoolArray | None, first: int, last: int
) -> tuple[Share | None, int]:
    """Return the part's rows with room in all slots, those with the fewest copies first: large holes stay free."""
    room = _room(future, part, first, last)
    if limit is not None:
        room = room * limit[: len(room)]
    (rows,) = room.nonzero()
    fitting = room[rows]
    if len(rows) > 1:
        order = fitting.argsort(kind="stable")
        rows, fitting = rows[order], fitting[order]
    filled = fitting.cumsum()
    needed = int(filled.searchsorted(part.count)) + 1
    if needed > len(rows):
        return None, part.count - int(fitting.sum())
    chosen, counts = rows[:needed], fitting[:needed].copy()
    counts[-1] -= int(filled[needed - 1]) - part.count
    return Share(part.pod_class, chosen, counts), 0


def _room(future: FutureMatrix, part: Part, first: int, last: int) -> IntArray:
    """Return int64[N]: the number of copies that each row has room for in all slots."""
    copies = future.copies(part.pod_class)
    room: IntArray = copies[first:last].min(axis=0).astype(np.int64) * part.rows[: copies.shape[1]]
    return room


def charges_of(parts: Sequence[Part]) -> tuple[tuple[ChargePath, tuple[tuple[str, int], ...]], ...]:
    """Return the sum of the parts' amounts by charge path."""
    amounts: dict[ChargePath, dict[str, int]] = {}
    for part in parts:
        if part.charge_path is not None:
            add_amounts(amounts.setdefault(part.charge_path, {}), part.pod_class.footprint.amounts, part.count)
    return tuple((charge_path, tuple(sorted(wanted.items()))) for charge_path, wanted in amounts.items())
