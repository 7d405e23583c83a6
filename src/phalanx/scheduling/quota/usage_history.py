"""Usage of accounts over time: a decaying average, and resource-hours per budget window.

Usage is constant between two changes, so it is not sampled: the history is stored at each change, and later values
are computed on request.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import msgspec

from phalanx.cluster.accounts import AccountRecord
from phalanx.model.account import AccountKey, Budget

Key = TypeVar("Key", bound=Hashable)

MILLISECONDS_PER_HOUR = 3_600_000
# Smaller averages (in thousandths of a milli-core or byte) count as zero.
_NEGLIGIBLE = 1e-3
# A restored history of an account that does not appear for this long is dropped (milliseconds).
_LONGEST_ABSENCE = 32 * 24 * MILLISECONDS_PER_HOUR
WEIGHT_SCALE = 10**6


class AccountUsage(msgspec.Struct, frozen=True):
    """Stored history of one account as of `at` (milliseconds since the epoch), sufficient to continue from.

    `held` is the usage since then, `decayed` the decayed average of earlier usage. `spent` is the consumption since
    `window`, the beginning of its budget's window (amounts x milliseconds; 0 and empty without a budget).
    """

    key: AccountKey
    at: int
    held: Mapping[str, int] = {}
    decayed: Mapping[str, float] = {}
    window: int = 0
    spent: Mapping[str, int] = {}


class Arrival(msgspec.Struct, frozen=True):
    """Amounts that one pod has used since a moment, in milliseconds since the epoch."""

    since: int
    amounts: Mapping[str, int]


class UsageHistory:
    """Usage of every account that has usage, or a past usage that has not decayed yet.

    The average decays as HTCondor's real user priority does (HTCondor manual, "User Priorities and Negotiation").
    Over a time t of constant `held`,

        U' = U * b + held * (1 - b)    with b = 0.5 ** (t / half_life).

    U tends to the usage, and usage one half-life ago counts half. `half_life` is in seconds; with None there is no
    average.

    With `denied`, usage while siblings wait costs double: U tends to `held * (1 + d)`. d is 1 while another account
    of the same tree and parent has unmet requests, else 0. This is the idea of congestion pricing: usage costs what
    it denies to others, so a night on an empty cluster is cheaper than a day on a full one.

    Times are in seconds since the epoch. An earlier `now` than the last one counts as no time passed.
    """

    def __init__(self, half_life: float | None = None, denied: bool = False) -> None:
        self._half_life = _milliseconds(half_life or 0)
        self._denied = denied
        self._now = 0
        self._entries: dict[AccountKey, _Entry] = {}
        self._siblings: dict[tuple[object, ...], _Siblings] = {}
        # Accounts for which a decision was made because their budget is spent, since the last `take_spent`.
        self._found_spent: set[AccountKey] = set()

    def configure(self, half_life: float | None, denied: bool, now: float) -> bool:
        """Apply new rules from `now` on; earlier time is charged by the old rules. Return whether the rules differ.

        After a change all accounts must be observed: without a half-life, accounts without a budget are not
        recorded.
        """
        rules = (_milliseconds(half_life or 0), denied)
        if rules == (self._half_life, self._denied):
            return False
        moment = self._moment(now)
        for entry in self._entries.values():
            self._write_down(entry, moment, entry.base.held)
        self._half_life, self._denied = rules
        return True

    # Recording

    def advance(self, record: AccountRecord, now: float) -> None:
        """Record the usage and requests of an account since `now`. This is cheap if nothing has changed."""
        moment = self._moment(now)
        entry = self._entries.get(record.key)
        budget = record.spec.budget if record.spec is not None else None
        if entry is None:
            if not (self._half_life or budget) or not (record.used or record.pending):
                return
            entry = self._entries[record.key] = _Entry(AccountUsage(record.key, moment))
        siblings, waits = entry.siblings, bool(record.pending)
        if siblings is None or record.parent is not entry.parent:
            siblings, entry.parent = self._group(record), record.parent
        if not entry.seen:
            entry.see(record)
            self._join(entry, siblings, waits, moment)
        if (entry.siblings, entry.waits, entry.budget, entry.base.held) == (
            siblings,
            waits,
            budget,
            record.allocated,
        ):
            return
        self._write_down(entry, moment, record.allocated)
        if entry.budget != budget:
            entry.open(budget, moment)
        self._join(entry, siblings, waits, moment)
        entry.denied = siblings.denied(waits)

    @property
    def decays(self) -> bool:
        """Whether the average of every account is recorded, and not only the budgets."""
        return self._half_life > 0

    def clear(self) -> None:
        """Drop all histories."""
        self._entries.clear()
        self._siblings.clear()

    def observe(self, records: Iterable[AccountRecord], now: float) -> None:
        """Record accounts that can have changed."""
        for record in records:
            self.advance(record, now)

    def observe_all(self, accounts: Mapping[AccountKey, AccountRecord], now: float) -> None:
        """Record all accounts; other known accounts have no usage from now on."""
        self.observe(accounts.values(), now)
        for key, entry in self._entries.items():
            if key not in accounts and entry.seen:
                self.advance(AccountRecord(key), now)

    # Queries

    def decayed(self, record: AccountRecord, now: float) -> Mapping[str, float]:
        """Return resource -> decayed average of the usage, with `denied` including the surcharge."""
        self.advance(record, now)
        entry = self._entries.get(record.key)
        return self._faded(entry, self._now) if entry is not None else {}

    def spent(self, record: AccountRecord, now: float) -> Mapping[str, int]:
        """Return resource -> exact amount x milliseconds spent in the present window of the account's budget."""
        self.advance(record, now)
        entry = self._entries.get(record.key)
        return entry.spending(self._now)[1] if entry is not None else {}

    def note_spent(self, key: AccountKey) -> None:
        """Note that a decision rests on the spent budget of an account."""
        self._found_spent.add(key)

    # State that outlives the process

    def take_spent(self) -> list[AccountKey]:
        """Return the accounts that were noted since the last call."""
        noted = sorted(key for key in self._found_spent if key in self._entries)
        self._found_spent.clear()
        return noted

    def write_down(self, key: AccountKey, now: float) -> None:
        """Include the usage up to `now` in the stored history of an account."""
        entry = self._entries[key]
        self._write_down(entry, self._moment(now), entry.base.held)

    def shows_as_spent(self, usage: AccountUsage, now: float) -> bool:
        """Return whether a history by itself shows that its account's budget is spent in the present window."""
        entry, moment = self._entries.get(usage.key), self._moment(now)
        budget = entry.budget if entry is not None else None
        if budget is None or usage.window != moment - moment % (budget.window * 1000):
            return False
        return any(usage.spent.get(name, 0) >= cap * MILLISECONDS_PER_HOUR for name, cap in budget.hours)

    def export(self, now: float, stale: float | None = None) -> list[AccountUsage]:
        """Return the histories by account key. A history does not change while its account does not.

        Expired histories are dropped. Histories of accounts with usage that were stored `stale` seconds ago or
        earlier are updated, so that a crash loses little.
        """
        moment = self._moment(now)
        for key in [key for key, entry in self._entries.items() if self._is_expired(entry, moment)]:
            del self._entries[key]
        used = {entry.siblings for entry in self._entries.values()}
        self._siblings = {group: siblings for group, siblings in self._siblings.items() if siblings in used}
        for entry in self._entries.values():
            old = stale is not None and entry.seen and moment - entry.base.at >= stale * 1000
            if (old and entry.base.held) or self._surcharged(entry, moment):
                self._write_down(entry, moment, entry.base.held)
        return [self._entries[key].base for key in sorted(self._entries)]

    def restore(self, usages: Iterable[AccountUsage], now: float) -> None:
        """Restore the histories that an earlier process exported. Accounts with a newer history keep it.

        For the time in between, an account is charged the smaller of its usage before and after.
        """
        moment = self._moment(now)
        for usage in usages:
            past = msgspec.structs.replace(usage, at=min(usage.at, moment))
            self._entries.setdefault(usage.key, _Entry(past, seen=False))

    def charge_since(self, record: AccountRecord, arrivals: Iterable[Arrival], now: float) -> None:
        """Charge an account that this process has not recorded yet for pods that it has now, since their arrival.

        Pods that arrived before the restored history are part of it: it is continued for as much of it as is left.
        """
        entry, moment = self._entries.get(record.key), self._moment(now)
        if entry is not None and entry.seen:
            return
        last = entry.base.at if entry is not None else -1
        new = [arrival for arrival in arrivals if max(last, 0) < arrival.since < moment]
        if entry is not None and new:
            left = dict(record.allocated)
            for arrival in new:
                for name, amount in arrival.amounts.items():
                    left[name] = left.get(name, 0) - amount
            held = {name: min(amount, left.get(name, 0)) for name, amount in entry.base.held.items()}
            entry.base = msgspec.structs.replace(
                entry.base, held={name: amount for name, amount in held.items() if amount > 0}
            )
        self.advance(record, now)
        entry = self._entries.get(record.key)
        if entry is not None and new:
            self._write_down(entry, moment, entry.base.held)
            entry.base = self._with_arrivals(entry.base, new)

    def _with_arrivals(self, base: AccountUsage, arrivals: Iterable[Arrival]) -> AccountUsage:
        """Return a history with the usage of pods that had arrived before its moment and are not included."""
        decayed, spent = dict(base.decayed), dict(base.spent)
        for arrival in arrivals:
            passed, spending = base.at - arrival.since, base.at - max(arrival.since, base.window)
            gained = 1.0 - 0.5 ** (passed / self._half_life) if self._half_life else 0.0
            for name, amount in arrival.amounts.items():
                if gained:
                    decayed[name] = decayed.get(name, 0.0) + amount * gained
                if name in self._budgeted(base.key):
                    spent[name] = spent.get(name, 0) + amount * spending
        return msgspec.structs.replace(base, decayed=decayed, spent=spent)

    def _budgeted(self, key: AccountKey) -> frozenset[str]:
        budget = self._entries[key].budget
        return frozenset(name for name, _ in budget.hours) if budget is not None else frozenset()

    def _moment(self, now: float) -> int:
        self._now = max(self._now, _milliseconds(now))
        return self._now

    def _group(self, record: AccountRecord) -> _Siblings:
        key, parent = record.key, record.parent
        group = (key.tree, key.forest, parent.key if parent is not None else None)
        return self._siblings.setdefault(group, _Siblings())

    def _join(self, entry: _Entry, siblings: _Siblings, waits: bool, moment: int) -> None:
        """Update the account's siblings, and whether it waits."""
        for group in (entry.siblings, siblings):
            if group is not None and self._half_life:
                group.advance(moment, self._half_life)
        entry.join(siblings, waits)

    def _write_down(self, entry: _Entry, moment: int, held: Mapping[str, int]) -> None:
        """Store the history up to `moment`; `held` is the usage from then on."""
        decayed = self._faded(entry, moment)
        window, spent = entry.spending(moment)
        entry.base = AccountUsage(entry.base.key, max(moment, entry.base.at), dict(held), decayed, window, spent)
        entry.denied = entry.siblings.denied(entry.waits) if entry.siblings is not None else 0.0

    def _faded(self, entry: _Entry, moment: int) -> Mapping[str, float]:
        if not self._half_life:
            return {}
        base = entry.base
        if moment == base.at:
            return base.decayed
        decay = 0.5 ** (max(0, moment - base.at) / self._half_life)
        gained = 1.0 - decay + self._surcharge(entry, moment, decay)
        names = base.decayed.keys() | base.held.keys()
        average = {n: base.decayed.get(n, 0.0) * decay + base.held.get(n, 0) * gained for n in names}
        return {name: amount for name, amount in average.items() if amount >= _NEGLIGIBLE}

    def _surcharge(self, entry: _Entry, moment: int, decay: float) -> float:
        """Return the surcharge on the account's usage since its base, as a part of the usage.

        The average D of d decays by the same rule, so D' - D * b is the part added since.
        """
        if not self._denied or entry.siblings is None:
            return 0.0
        entry.siblings.advance(moment, self._half_life)
        return entry.siblings.denied(entry.waits) - entry.denied * decay

    def _surcharged(self, entry: _Entry, moment: int) -> bool:
        """Return whether siblings have waited since the account's base: the base does not include their waiting."""
        if not (self._denied and self._half_life and entry.base.held):
            return False
        decay = 0.5 ** (max(0, moment - entry.base.at) / self._half_life)
        return self._surcharge(entry, moment, decay) > _NEGLIGIBLE

    def _is_expired(self, entry: _Entry, moment: int) -> bool:
        if entry.waits or (entry.seen and entry.base.held):
            return False
        absent = 0 if entry.seen else moment - entry.base.at
        if not entry.seen and absent < MILLISECONDS_PER_HOUR:
            return False  # its record can still appear
        return absent > _LONGEST_ABSENCE or not (self._faded(entry, moment) or entry.spending(moment)[1])


class _Siblings:
    """Accounts that compete: the number that wait, and decayed averages of waiting.

    `one` is the average of "at least one waits", `two` that of "at least two wait": for an account that waits
    itself, a sibling waits only if two accounts do.
    """

    __slots__ = ("_at", "_one", "_two", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self._at = 0
        self._one = 0.0
        self._two = 0.0

    def advance(self, moment: int, half_life: int) -> None:
        if moment > self._at:
            decay = 0.5 ** ((moment - self._at) / half_life)
            self._one = self._one * decay + (1.0 - decay) * (self.waiting >= 1)
            self._two = self._two * decay + (1.0 - decay) * (self.waiting >= 2)
            self._at = moment

    def denied(self, waits: bool) -> float:
        return self._two if waits else self._one


class _Entry:
    """History of one account up to the last change, and its present state.

    `parent` is its last parent account. `seen` is False for a restored account until its record appears. `denied`
    is the average of its siblings' waiting (see `_Siblings.denied`) at `base.at`.
    """

    __slots__ = ("base", "budget", "denied", "parent", "seen", "siblings", "waits")

    def __init__(self, base: AccountUsage, seen: bool = True) -> None:
        self.base = base
        self.seen = seen
        self.waits = False
        self.siblings: _Siblings | None = None
        self.parent: AccountRecord | None = None
        self.denied = 0.0
        self.budget: Budget | None = None

    def see(self, record: AccountRecord) -> None:
        """Bind the restored history to the account's record: only usage both before and now counts in between."""
        self.seen = True
        self.budget = record.spec.budget if record.spec is not None else None
        now = record.allocated
        held = {name: min(amount, now[name]) for name, amount in self.base.held.items() if name in now}
        self.base = msgspec.structs.replace(self.base, held=held)

    def join(self, siblings: _Siblings, waits: bool) -> None:
        if self.siblings is not None:
            self.siblings.waiting -= self.waits
        siblings.waiting += waits
        self.siblings, self.waits = siblings, waits

    def open(self, budget: Budget | None, moment: int) -> None:
        """Set another budget; the spent amounts stay if the window is the same."""
        if budget is None or self.budget is None or budget.window != self.budget.window:
            window = moment - moment % (budget.window * 1000) if budget is not None else 0
            self.base = msgspec.structs.replace(self.base, window=window, spent={})
        self.budget = budget

    def spending(self, moment: int) -> tuple[int, dict[str, int]]:
        """Return (begin of the window at `moment`, amounts spent in it)."""
        base, budget = self.base, self.budget
        if budget is None:
            return base.window, dict(base.spent)
        moment = max(moment, base.at)
        window = moment - moment % (budget.window * 1000)
        before = base.spent if window == base.window else {}
        passed = moment - max(base.at, window)
        spent = {name: before.get(name, 0) + base.held.get(name, 0) * passed for name, _ in budget.hours}
        return window, {name: amount for name, amount in spent.items() if amount}


def shifted_weights(weights: Mapping[Key, int], usages: Mapping[Key, float], k: float) -> dict[Key, int]:
    """Return the weights of siblings in units of 1 / `WEIGHT_SCALE`, shifted towards accounts with less past usage.

    w' = max(0, w + k * (w - u)) with weight and usage normalised among the siblings, as in KAI-Scheduler's
    time-aware fairness (kValue). An account with a weight keeps at least the smallest one, so that unrequested
    resources do not stay idle. Without any usage, or with k = 0, the weights stay.
    """
    weight, usage = sum(weights.values()), sum(usages.get(key, 0.0) for key in weights)
    if k <= 0 or usage <= 0:
        return {key: own * WEIGHT_SCALE for key, own in weights.items()}
    return {
        key: max(min(own, 1), round((own + k * (own - weight * usages.get(key, 0.0) / usage)) * WEIGHT_SCALE))
        for key, own in weights.items()
    }


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
