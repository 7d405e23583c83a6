"""`AccountSpec`, the queues and quotas that one object declares, and the base reader of all such objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from phalanx.dialects.quotas.budgets import BUDGET, parse_budget
from phalanx.dialects.quotas.eviction_limits import (
    EVICTION_RATE,
    MAX_PROTECTION_TIME,
    MIN_RUN_TIME,
    SELF_PROTECTION,
    parse_eviction_rate,
    parse_max_protection_time,
    parse_min_run_time,
    parse_self_protection,
)
from phalanx.dialects.reader import ObjectReader, describe
from phalanx.dialects.run_times.stated import COLLECT_AFTER, MAX_RUN_TIME, parse_collect_after, parse_run_time
from phalanx.model.account import Account, Budget, EvictionRate, Limits, SelfProtection, Tree, limits_of
from phalanx.model.gang import GroupRef, Problem
from phalanx.model.resources import parse_amount
from phalanx.model.text.decoding import decode_json
from phalanx.model.text.quantity import QuantityError, format_quantity

T = TypeVar("T")
Amounts = dict[str, int]
Stated = Mapping[str, str]
Rank = tuple[int, int, str, str, str, str]

_QUOTA_PREFIXES = ("requests.", "limits.", "count/")


class Place(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Name that only one object can hold: that of a queue, of a namespace's elastic quota, or of the one quota
    tree."""

    tree: Tree
    name: str


class AccountSpec(msgspec.Struct, frozen=True):
    """Queues and quotas that one object declares if it holds the place.

    Among several objects for one place, the one with the lowest `rank` holds it; all other ones get a warning
    `code`, or none if it is "". `warnings` concern the object as a whole; each account has its own warnings.
    """

    ref: GroupRef
    place: Place
    rank: Rank
    accounts: tuple[Account, ...]
    code: str
    warnings: tuple[Problem, ...] = ()


class AccountReader(ObjectReader):
    """Decodes the fields that queue and quota objects of all dialects share."""

    def rank(self, family: int = 0) -> Rank:
        """Return the sort key of the object among those with its name: the older one first, then by name."""
        ref = self.ref
        return (family, self.created, ref.name, ref.namespace, ref.group, ref.uid)

    def amounts(self, value: object, field: str) -> Amounts:
        """Parse a map of resource quantities. An unreadable one makes the queue or quota unusable; a missing map is
        empty."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.refuse(field, value, "write a map such as {cpu: 4, memory: 8Gi}")
            return {}
        amounts: Amounts = {}
        for name, quantity in value.items():
            try:
                amount = parse_amount(name, quantity)
            except QuantityError:
                amount = -1
            if amount < 0:
                self.refuse(f"{field}.{name}", quantity, "write a quantity of at least 0, such as 4, 500m or 8Gi")
                continue
            if name.startswith(_QUOTA_PREFIXES):
                plain = name.removeprefix("count/").split(".", 1)[-1]
                advice = f"pods request no such resource; write {plain}"
                self.warn("UnknownResource", f"{field}.{name}", quantity, advice)
            amounts[name] = amount
        return amounts

    def annotated_amounts(self, key: str) -> Amounts | None:
        """Parse a map of resource quantities in an annotation; None for a missing or unreadable one."""
        text = self.annotations.get(key, "")
        if not text:
            return None
        field = f"annotation {key}"
        amounts: Amounts = {}
        try:
            stated = decode_json(text, dict[str, str | int | float])
            for name, quantity in stated.items():
                amounts[name] = parse_amount(name, quantity)
        except (msgspec.DecodeError, QuantityError):
            advice = 'write JSON such as {"cpu": "4", "memory": "8Gi"}; the value is ignored'
            self.warn("InvalidAnnotation", field, text, advice)
            return None
        if any(amount < 0 for amount in amounts.values()):
            self.warn("InvalidAnnotation", field, text, "amounts cannot be negative; the value is ignored")
            return None
        return amounts

    def below(self, amounts: Amounts, field: str, maximum: Amounts, limit_field: str, code: str) -> Limits:
        """Return the `amounts`, such as a queue's guarantee, limited to `maximum`, with a warning for each limited
        amount."""
        limited = dict(amounts)
        for name, amount in amounts.items():
            limit = maximum.get(name)
            if limit is not None and amount > limit:
                limited[name] = limit
                above, most = format_quantity(amount, name), format_quantity(limit, name)
                message = f"{field}.{name} is {above}, above {limit_field}.{name} {most}; {most} is used"
                self.warnings.append(Problem(code, f"{describe(self.ref)}: {message}"))
        return limits_of(limited)

    # Annotations of an object about its accounts; `stated` are the attributes of the part `place` of an object.

    def budget(self, stated: Stated | None = None, place: str = "annotation") -> Budget | None:
        text = self._text(BUDGET, stated)
        if not text:
            return None
        budget, faults = parse_budget(text)
        for fault in faults:
            self.warnings.append(Problem("InvalidBudget", f"{describe(self.ref)}: {place} {BUDGET}: {fault}"))
        return budget

    def min_run_time(self, stated: Stated | None = None, place: str = "annotation") -> int:
        return self._parsed(MIN_RUN_TIME, stated, place, parse_min_run_time) or 0

    def collect_after(self) -> int | None:
        return self._parsed(COLLECT_AFTER, None, "annotation", parse_collect_after)

    def max_run_time(self, stated: Stated | None = None, place: str = "annotation") -> int:
        return self._parsed(MAX_RUN_TIME, stated, place, parse_run_time) or 0

    def eviction_rate(self, stated: Stated | None = None, place: str = "annotation") -> EvictionRate | None:
        return self._parsed(EVICTION_RATE, stated, place, parse_eviction_rate)

    def self_protection(self, stated: Stated | None = None, place: str = "annotation") -> SelfProtection | None:
        return self._parsed(SELF_PROTECTION, stated, place, parse_self_protection)

    def max_protection(self, stated: Stated | None = None, place: str = "annotation") -> int:
        return self._parsed(MAX_PROTECTION_TIME, stated, place, parse_max_protection_time) or 0

    def _text(self, key: str, stated: Stated | None) -> str:
        return (self.annotations if stated is None else stated).get(key, "")

    def _parsed(self, key: str, stated: Stated | None, place: str, parse: Callable[[str], T]) -> T | None:
        """Parse one annotation of a queue or quota; None for a missing or unreadable one."""
        text = self._text(key, stated)
        if not text:
            return None
        try:
            return parse(text)
        except ValueError as error:
            self.warn("InvalidAnnotation", f"{place} {key}", text, str(error))
            return None
