"""Index of queues and quotas: the objects that declare each, and the last published `Account` of each."""

from __future__ import annotations

from collections.abc import KeysView, Mapping
from functools import partial
from typing import Any

import msgspec

from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.quotas import koordinator_quotas
from phalanx.dialects.quotas.account_spec import AccountSpec, Place
from phalanx.dialects.reader import describe
from phalanx.dialects.warnings import ObjectWarning, ObjectWarnings, group_ref
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.events import AccountRemoved, AccountUpdated, ClusterEvent
from phalanx.model.gang import GroupRef, Problem
from phalanx.model.text.decoding import quoted

Address = tuple[ServedKind, str, str]


class AccountObject(msgspec.Struct, frozen=True):
    """Object that declares a queue or quota, with its last seen status. `controller` is how another controller
    writes its state: "Apply", "Update", or "" if none does."""

    ref: GroupRef
    status: Mapping[str, Any]
    controller: str = ""


class AccountIndex:
    """All queues and quotas that objects declare, each exactly once, in any order of arrival."""

    def __init__(self, warnings: ObjectWarnings) -> None:
        self._object_warnings = warnings
        self._objects: dict[Address, AccountSpec] = {}
        self._statuses: dict[Address, tuple[Mapping[str, Any], str]] = {}
        self._candidates: dict[Place, dict[Address, AccountSpec]] = {}
        # Declarations of the objects that hold a place, before conflicts between accounts are resolved.
        self._declared: dict[AccountKey, tuple[Account, Address]] = {}
        self._published: dict[AccountKey, Account] = {}
        # Problems of an object as a whole, for example that another object holds its place.
        self._object_problems: dict[Address, tuple[Problem, ...]] = {}
        self._claims: dict[str, set[AccountKey]] = {}
        self._forests: dict[str, int] = {}
        self._accounts_of_place: dict[Place, tuple[AccountKey, ...]] = {}

    def replace(
        self,
        address: Address,
        spec: AccountSpec | None,
        status: Mapping[str, Any],
        controller: str = "",
    ) -> list[ClusterEvent]:
        """Replace the queues and quotas that one object declares; None means that it was deleted."""
        if spec is None:
            self._statuses.pop(address, None)
        else:
            self._statuses[address] = (status, controller)
        last = self._objects.get(address)
        if spec == last:
            return []
        keys: set[AccountKey] = set()
        places = []
        if last is not None:
            del self._objects[address], self._candidates[last.place][address]
            places.append(last.place)
        if spec is not None:
            self._objects[address] = spec
            self._candidates.setdefault(spec.place, {})[address] = spec
            places.append(spec.place)
        else:
            self._object_problems.pop(address, None)
        for place in dict.fromkeys(places):
            keys |= self._resolve(place)
        return self._events_of(keys)

    def last(self, address: Address) -> AccountSpec | None:
        return self._objects.get(address)

    def addresses(self, resource: ServedKind) -> list[Address]:
        return sorted(address for address in self._objects if address[0] == resource)

    def keys(self) -> KeysView[AccountKey]:
        """Return the keys of queues and quotas that have an object."""
        return self._declared.keys()

    def object(self, key: AccountKey) -> AccountObject | None:
        """Return the object of a queue or quota; None if no object declares it."""
        declared = self._declared.get(key)
        if declared is None:
            return None
        address = declared[1]
        return AccountObject(self._objects[address].ref, *self._statuses[address])

    # Ownership of places.

    def _resolve(self, place: Place) -> set[AccountKey]:
        """Determine which object holds a name that several declare; return the queues and quotas that this can
        change."""
        candidates = self._candidates[place]
        touched: set[AccountKey] = set()
        for key in self._accounts_of_place.pop(place, ()):
            touched |= self._withdraw(key)
        if not candidates:
            del self._candidates[place]
            return touched
        ranked = sorted(candidates, key=lambda address: (candidates[address].rank, address))
        holder = candidates[ranked[0]]
        self._accounts_of_place[place] = tuple(account.key for account in holder.accounts)
        for account in holder.accounts:
            touched |= self._declare(account, ranked[0])
        self._warn_of_object(ranked[0], holder.warnings)
        for address in ranked[1:]:
            loser = candidates[address]
            self._warn_of_object(address, (_lost_to(holder, loser),) if loser.code else ())
        return touched

    def _declare(self, account: Account, address: Address) -> set[AccountKey]:
        key = account.key
        self._declared[key] = (account, address)
        if key.tree is not Tree.KOORDINATOR:
            return {key}
        self._forests[key.forest] = self._forests.get(key.forest, 0) + 1
        touched = {key}
        for namespace in account.namespaces:
            claims = self._claims.setdefault(namespace, set())
            claims.add(key)
            touched |= claims
        return touched

    def _withdraw(self, key: AccountKey) -> set[AccountKey]:
        account, _ = self._declared.pop(key)
        if key.tree is not Tree.KOORDINATOR:
            return {key}
        self._forests[key.forest] -= 1
        if not self._forests[key.forest]:
            del self._forests[key.forest]
        touched = {key}
        for namespace in account.namespaces:
            claims = self._claims[namespace]
            touched |= claims
            claims.discard(key)
            if not claims:
                del self._claims[namespace]
        return touched

    # Final form of accounts.

    def _events_of(self, keys: set[AccountKey]) -> list[ClusterEvent]:
        forests = {key.forest for key in keys if key.tree is Tree.KOORDINATOR}
        if forests:
            builtin = (koordinator_quotas.ROOT, koordinator_quotas.SYSTEM, koordinator_quotas.DEFAULT)
            keys |= {koordinator_quotas.quota_key(name) for name in builtin}
            keys |= {koordinator_quotas.quota_key(koordinator_quotas.ROOT, forest) for forest in forests}
        events: list[ClusterEvent] = []
        for key in sorted(keys):
            account, last = self._final(key), self._published.get(key)
            if account == last:
                continue
            if account is None:
                del self._published[key]
                events.append(AccountRemoved(key))
                continue
            self._published[key] = account
            self._warn_of(account, last)
            events.append(AccountUpdated(account))
        return events

    def _final(self, key: AccountKey) -> Account | None:
        declared = self._declared.get(key)
        if declared is not None:
            return self._uncontested(declared[0]) if key.tree is Tree.KOORDINATOR else declared[0]
        return koordinator_quotas.implied_quota(key) if self._is_implied(key) else None

    def _is_implied(self, key: AccountKey) -> bool:
        """Return whether Koordinator creates the quota itself: its built-in quotas, and a root for every tree."""
        if key.tree is not Tree.KOORDINATOR or not self._forests:
            return False
        if key.name == koordinator_quotas.ROOT:
            return not key.forest or key.forest in self._forests
        return not key.forest and key.name in (koordinator_quotas.SYSTEM, koordinator_quotas.DEFAULT)

    def _uncontested(self, account: Account) -> Account:
        """Return the quota without the namespaces that an older quota has already."""
        lost: dict[str, Account] = {}
        for namespace in account.namespaces:
            rivals = [self._declared[key][0] for key in self._claims[namespace]]
            holder = min(rivals, key=lambda rival: (rival.created, rival.label))
            if holder.key != account.key:
                lost[namespace] = holder
        if not lost or account.source is None:
            return account
        source = account.source
        warnings = tuple(
            Problem(
                "NamespaceClaimedTwice",
                f"{describe(source)}: namespace {quoted(namespace)} belongs to {holder.label}, which is older and "
                "keeps it; remove it from one of them",
            )
            for namespace, holder in lost.items()
        )
        return msgspec.structs.replace(
            account,
            namespaces=tuple(name for name in account.namespaces if name not in lost),
            warnings=account.warnings + warnings,
        )

    # Warnings to users.

    def _warn_of(self, account: Account, last: Account | None) -> None:
        """Warn about each new problem or warning of a queue or quota once, at its object."""
        known = {last.problem, *last.warnings} if last is not None else set()
        for problem in (account.problem, *account.warnings):
            if problem is not None and problem not in known and account.source is not None:
                notice = ObjectWarning(group_ref(account.source), "Warning", problem.code, problem.message)
                self._object_warnings.add(notice, partial(self._is_current, account.key, problem))

    def _is_current(self, key: AccountKey, problem: Problem) -> bool:
        account = self._published.get(key)
        return account is not None and problem in (account.problem, *account.warnings)

    def _warn_of_object(self, address: Address, problems: tuple[Problem, ...]) -> None:
        last, self._object_problems[address] = self._object_problems.get(address, ()), problems
        if not problems:
            del self._object_problems[address]
        about = group_ref(self._objects[address].ref)
        for problem in problems:
            if problem not in last:
                notice = ObjectWarning(about, "Warning", problem.code, problem.message)
                self._object_warnings.add(notice, partial(self._has_object_problem, address, problem))

    def _has_object_problem(self, address: Address, problem: Problem) -> bool:
        return problem in self._object_problems.get(address, ())


def _lost_to(holder: AccountSpec, loser: AccountSpec) -> Problem:
    place, winner = loser.place, describe(holder.ref)
    fact = {
        Tree.QUEUE: f"queue {place.name} is declared by {winner}",
        Tree.ELASTIC_QUOTA: f"namespace {place.name} has {winner}",
        Tree.KOORDINATOR: f"quota {place.name} is declared by {winner}",
    }.get(place.tree, f"there is {winner}")
    return Problem(loser.code, f"{describe(loser.ref)}: {fact} already, which holds; delete one of them")
