"""Costs of CEL comprehensions and functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from phalanx_local.schema.cel.functions import Overload
from phalanx_local.schema.cel.ranges import ONE, ZERO, Range, fixed

#: Cost of walking one character, and factor per character of a pattern.
WALK: Final = 0.1
PATTERN: Final = 0.25
LIST: Final = fixed(10)
MAP: Final = fixed(30)
#: Length of the longest named format as a pattern.
NAMED_PATTERN: Final = 128
NAMED_LIMIT: Final = 64


def compared(sizes: list[Range]) -> Range:
    """Return the cost of comparing two values, which ends at the end of the shorter one."""
    shorter = min(sizes[0].high, sizes[1].high)
    return Range(int(shorter > 0), shorter) * WALK


Loop = Callable[[list[Range]], tuple[Range, Range, Range]]


def _quantified(condition: int) -> Loop:
    """Return the loop cost of the macros all and exists: the condition tests for a decision, the step evaluates the
    predicate."""
    return lambda costs: (ZERO, fixed(condition) + Range(1, (ONE + costs[0]).high), ONE)


def _one(costs: list[Range]) -> tuple[Range, Range, Range]:
    return ZERO, costs[0] + Range(1, 2), fixed(2)


def _collected(start: Range, append_cost: Range) -> Loop:
    """Return the loop cost of map and similar macros: a step appends a list of one item, unless a filter skips
    it."""

    def loop(costs: list[Range]) -> tuple[Range, Range, Range]:
        step = append_cost + costs[-1]
        return start, costs[0] + (step | ONE) if len(costs) == 2 else step, ONE

    return loop


def _filtered(costs: list[Range]) -> tuple[Range, Range, Range]:
    return LIST, costs[0] + (fixed(13) | ONE), ONE


#: Costs of each macro from the costs of its expressions: of the start, of a step, of the result.
LOOPS: Final[dict[str, Loop]] = {
    "all": _quantified(2),
    "exists": _quantified(3),
    "exists_one": _one,
    "existsOne": _one,
    "filter": _filtered,
    "map": _collected(LIST, fixed(12)),
    "transformList": _collected(LIST, fixed(12)),
    "transformMap": _collected(MAP, fixed(3)),
    "transformMapEntry": _collected(MAP, fixed(2)),
}

Rule = Callable[[list[Range], Overload], tuple[Range, Range | None]]


def _walked(operand: int, factor: float = WALK, *, result: bool = False) -> Rule:
    """Return a cost rule for a function that reads one whole operand; ``result``: the function returns a value of
    that size."""
    return lambda sizes, over: (sizes[operand] * factor, sizes[operand] if result else None)


def _matched(sizes: list[Range], over: Overload) -> tuple[Range, Range | None]:
    if not over.receiver:
        return ONE, None
    return ((sizes[0] + ONE) * WALK) * (sizes[1] * PATTERN), None


def _found(sizes: list[Range], over: Overload) -> tuple[Range, Range | None]:
    return ((sizes[0] + ONE) * WALK) * (sizes[1] * PATTERN), Range(0, sizes[0].high)


def _contained(sizes: list[Range], over: Overload) -> tuple[Range, Range | None]:
    return (sizes[0] * WALK) * (sizes[1] * WALK), None


def _replaced(sizes: list[Range], over: Overload) -> tuple[Range, Range | None]:
    text, old, new = sizes[:3]
    max_count, kept_most = 0, 0
    if old.low == 0:
        max_count, kept_most = (text + ONE).high, text.high
    elif new.high <= old.low:
        kept_most = text.high
    else:
        max_count = math.ceil(text.high / old.low)
    min_count, kept_least = 0, 0
    if old.high == 0:
        min_count, kept_least = (text + ONE).low, text.low
    elif old.high <= new.low:
        kept_least = text.low
    else:
        min_count = math.ceil(text.low / old.high)
    result = Range(min_count, max_count) * new + Range(kept_least, kept_most)
    return text * (2 * WALK), result


def _quoted(sizes: list[Range], over: Overload) -> tuple[Range, Range | None]:
    return sizes[0] * WALK, sizes[0] * Range(1, 2) + fixed(2)


def _to_bytes(sizes: list[Range], over: Overload) -> tuple[Range, Range | None]:
    if over.wanted[0] != "string":
        return ONE, None
    return sizes[0] * WALK, sizes[0] * Range(1, 4)


def _to_string(sizes: list[Range], over: Overload) -> tuple[Range, Range | None]:
    if over.wanted[0] != "bytes":
        return ONE, None
    return sizes[0] * WALK, Range(sizes[0].low // 4, sizes[0].high)


def _to_address(sizes: list[Range], over: Overload) -> tuple[Range, Range | None]:
    return (ONE if over.receiver else sizes[0] * WALK), None


_ADDRESS: Final = Range(4, 16)


def _holds_ip(sizes: list[Range], over: Overload) -> tuple[Range, Range | None]:
    text = sizes[1] * WALK if over.wanted[1] == "string" else ZERO
    return (_ADDRESS + _ADDRESS) * WALK + text, None


def _holds_cidr(sizes: list[Range], over: Overload) -> tuple[Range, Range | None]:
    total, _ = _holds_ip(sizes, over)
    return total + _ADDRESS * WALK + ONE, None


def _validated(sizes: list[Range], over: Overload) -> tuple[Range, Range | None]:
    return sizes[1] * WALK * (NAMED_PATTERN * PATTERN), None


def _sets(factor: float) -> Rule:
    return lambda sizes, over: (sizes[0] * sizes[1] * factor + ONE, None)


#: Costs of functions beyond their operands and sizes of their results, from the sizes of the operands.
RULES: Final[dict[str, Rule]] = {
    "matches": _matched,
    "find": _found,
    "findAll": _found,
    "contains": _contained,
    "startsWith": _walked(1),
    "endsWith": _walked(1),
    "format": _walked(0),
    "replace": _replaced,
    "strings.quote": _quoted,
    "bytes": _to_bytes,
    "string": _to_string,
    "ip": _to_address,
    "ip.isCanonical": _walked(0, 2 * WALK),
    "containsIP": _holds_ip,
    "containsCIDR": _holds_cidr,
    "validate": _validated,
    "sets.contains": _sets(1),
    "sets.intersects": _sets(1),
    "sets.equivalent": _sets(2),
    **{name: _walked(0, result=True) for name in ("url", "lowerAscii", "upperAscii", "substring", "trim")},
    **{name: _walked(0) for name in ("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver")},
}
