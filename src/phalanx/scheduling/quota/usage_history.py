"""What accounts held over time: usage that fades with its age, and resource-hours per window.

What an account holds is constant between two changes, so nothing is sampled: the history of an account is written
down at a change, and what has become of it since is worked out when somebody asks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import msgspec

from phalanx.cluster.accounts import AccountRecord
from phalanx.model.account import AccountKey, Budget

Key = TypeVar("Key", bound=Hashable)

MILLISECONDS_PER_HOUR = 3_600_000
# An average below this (thousandths of a milli-core or byte) is nothing.
_NEGLIGIBLE = 1e-3
# What a former process told of an account that has not appeared for so long is forgotten (milliseconds).
_LONGEST_ABSENCE = 32 * 24 * MILLISECONDS_PER_HOUR
WEIGHT_SCALE = 10**6


class AccountUsage(msgspec.Struct, frozen=True):
    """The history of one account as of `at` (milliseconds since the epoch), enough to go on from.

    `held` is what the account holds since then, `decayed` the fading average of what it held before. `spent` is
    what it had used up since `window`, the beginning of its budget's window (amounts x milliseconds; 0 and empty
    without a budget).
    """

    key: AccountKey
    at: int
    held: Mapping[str, int] = {}
    decayed: Mapping[str, float] = {}
    window: int = 0
    spent: Mapping[str, int] = {}


class UsageHistory:
    """The usage of every account that holds something, or once did and is not forgiven yet.

    The average of what was held fades as HTCondor's real user priority does (HTCondor manual, "User Priorities and
    Negotiation"): over a time t in which `held` does not change,

        U' = U * b + held * (1 - b)    with b = 0.5 ** (t / half_life).

    U tends to what is held, and what was held one half-life ago counts half. `half_life` is in seconds; None keeps
    no average.

    With `denied`, what is held while others wait costs double: U tends to `held * (1 + d)`, where d is 1 while an
    account other than this one, of the same tree and below the same parent, asks for what it does not get, else 0.
    That is the idea of congestion pricing: use is charged what it keeps from others, so a night on an empty cluster
    is cheaper than a day on a full one.

    Times are in seconds since the epoch. An earlier `now` than before is no time passed.
    """

    def __init__(self, half_life: float | None = None, denied: bool = False) -> None:
        self._half_life = _milliseconds(half_life or 0)
        self._denied = denied
        self._now = 0
        self._entries: dict[AccountKey, _Entry] = {}
        self._siblings: dict[tuple[object, ...], _Siblings] = {}

    def configure(self, half_life: float | None, denied: bool, now: float) -> bool:
        """Other rules from `now` on; what has passed is charged by the old ones.

        True if they are other rules indeed: then every account is to be observed, since an account without a
        budget is not followed while there is no half-life.
        """
        rules = (_milliseconds(half_life or 0), denied)
        if rules == (self._half_life, self._denied):
            return False
        moment = self._moment(now)
        for entry in self._entries.values():
            self._write_down(entry, moment, entry.base.held)
        self._half_life, self._denied = rules
        return True

    # what happens

    def advance(self, record: AccountRecord, now: float) -> None:
        """Takes in what an account holds and asks for since `now`. Cheap if nothing has changed."""
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

    def clear(self) -> None:
        """Nobody looks back any more, so nobody observes: what comes later starts anew."""
        self._entries.clear()
        self._siblings.clear()

    def observe(self, records: Iterable[AccountRecord], now: float) -> None:
        """Several accounts may have changed."""
        for record in records:
            self.advance(record, now)

    def observe_all(self, accounts: Mapping[AccountKey, AccountRecord], now: float) -> None:
        """Everything may have changed: accounts that are not named here hold nothing from now on."""
        self.observe(accounts.values(), now)
        for key, entry in self._entries.items():
            if key not in accounts and entry.seen:
                self.advance(AccountRecord(key), now)

    # what is asked

    def decayed(self, record: AccountRecord, now: float) -> Mapping[str, float]:
        """resource -> the fading average of what the account held, with `denied` the surcharge included."""
        self.advance(record, now)
        entry = self._entries.get(record.key)
        return self._faded(entry, self._now) if entry is not None else {}

    def spent(self, record: AccountRecord, now: float) -> Mapping[str, int]:
        """resource -> amount x milliseconds used up in the current window of the account's budget, exactly."""
        self.advance(record, now)
        entry = self._entries.get(record.key)
        return entry.spending(self._now)[1] if entry is not None else {}

    # what survives

    def export(self, now: float, stale: float | None = None) -> list[AccountUsage]:
        """The history of every account, by key. It stays the same until the account changes: time alone is no news.

        Accounts of which nothing is left are forgotten. Of what is held, everything that was last written down
        `stale` seconds ago or earlier is brought up to date: should the process end, that much is proved.
        """
        moment = self._moment(now)
        for key in [key for key, entry in self._entries.items() if self._over(entry, moment)]:
            del self._entries[key]
        used = {entry.siblings for entry in self._entries.values()}
        self._siblings = {group: siblings for group, siblings in self._siblings.items() if siblings in used}
        for entry in self._entries.values():
            old = stale is not None and entry.seen and moment - entry.base.at >= stale * 1000
            if (old and entry.base.held) or self._surcharged(entry, moment):
                self._write_down(entry, moment, entry.base.held)
        return [self._entries[key].base for key in sorted(self._entries)]

    def restore(self, usages: Iterable[AccountUsage], now: float) -> None:
        """Goes on from what a former process exported. Accounts that are known already keep what they have.

        For the time in between an account is charged what it held both before and after.
        """
        moment = self._moment(now)
        for usage in usages:
            past = msgspec.structs.replace(usage, at=min(usage.at, moment))
            self._entries.setdefault(usage.key, _Entry(past, seen=False))

    def _moment(self, now: float) -> int:
        self._now = max(self._now, _milliseconds(now))
        return self._now

    def _group(self, record: AccountRecord) -> _Siblings:
        key, parent = record.key, record.parent
        group = (key.tree, key.forest, parent.key if parent is not None else None)
        return self._siblings.setdefault(group, _Siblings())

    def _join(self, entry: _Entry, siblings: _Siblings, waits: bool, moment: int) -> None:
        """The account competes with these siblings from now on, and waits or not."""
        for group in (entry.siblings, siblings):
            if group is not None and self._half_life:
                group.advance(moment, self._half_life)
        entry.join(siblings, waits)

    def _write_down(self, entry: _Entry, moment: int, held: Mapping[str, int]) -> None:
        """The account holds something else from now on."""
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
        left = 0.5 ** (max(0, moment - base.at) / self._half_life)
        gained = 1.0 - left + self._surcharge(entry, moment, left)
        names = base.decayed.keys() | base.held.keys()
        average = {n: base.decayed.get(n, 0.0) * left + base.held.get(n, 0) * gained for n in names}
        return {name: amount for name, amount in average.items() if amount >= _NEGLIGIBLE}

    def _surcharge(self, entry: _Entry, moment: int, left: float) -> float:
        """The part of what the account holds that it pays on top for the time since its base.

        The average D of d fades by the same rule, so D' - D * b is what the time in between has added to it.
        """
        if not self._denied or entry.siblings is None:
            return 0.0
        entry.siblings.advance(moment, self._half_life)
        return entry.siblings.denied(entry.waits) - entry.denied * left

    def _surcharged(self, entry: _Entry, moment: int) -> bool:
        """Whether others have waited since the account's base, which its base cannot tell."""
        if not (self._denied and self._half_life and entry.base.held):
            return False
        left = 0.5 ** (max(0, moment - entry.base.at) / self._half_life)
        return self._surcharge(entry, moment, left) > _NEGLIGIBLE

    def _over(self, entry: _Entry, moment: int) -> bool:
        if entry.waits or (entry.seen and entry.base.held):
            return False
        absent = 0 if entry.seen else moment - entry.base.at
        if not entry.seen and absent < MILLISECONDS_PER_HOUR:
            return False  # it may still come
        return absent > _LONGEST_ABSENCE or not (self._faded(entry, moment) or entry.spending(moment)[1])


class _Siblings:
    """Accounts that compete: how many of them wait, and fading averages of "somebody waits".

    `one` averages over time the truth of "at least one waits", `two` that of "at least two wait": for an account
    that waits itself, somebody else waits only if two do.
    """

    __slots__ = ("_at", "_one", "_two", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        self._at = 0
        self._one = 0.0
        self._two = 0.0

    def advance(self, moment: int, half_life: int) -> None:
        if moment > self._at:
            left = 0.5 ** ((moment - self._at) / half_life)
            self._one = self._one * left + (1.0 - left) * (self.waiting >= 1)
            self._two = self._two * left + (1.0 - left) * (self.waiting >= 2)
            self._at = moment

    def denied(self, waits: bool) -> float:
        return self._two if waits else self._one


class _Entry:
    """One account: its history up to the last change, and what holds since.

    `parent` is what it was last seen below.
    `seen` is False for an account that a former process told of, until its record appears. `denied` is the average
    of its siblings' waiting (see `_Siblings.denied`) at `base.at`.
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
        """The account is back: what it held before and holds now, it held in between."""
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
        """Another budget: what was spent stays spent if the windows are the same."""
        if budget is None or self.budget is None or budget.window != self.budget.window:
            window = moment - moment % (budget.window * 1000) if budget is not None else 0
            self.base = msgspec.structs.replace(self.base, window=window, spent={})
        self.budget = budget

    def spending(self, moment: int) -> tuple[int, dict[str, int]]:
        """(the beginning of the window at `moment`, what has been spent in it)."""
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
    """Weights of siblings in units of 1 / `WEIGHT_SCALE`, shifted towards those that used less than their part.

    w' = max(0, w + k * (w - u)) with weight and usage normalised among the siblings, as in KAI-Scheduler's
    time-aware fairness (kValue). Whoever has a weight keeps at least the smallest, so that what nobody else asks
    for is not left idle. Where nobody used anything, or with k = 0, the weights stay.
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
