"""Plugin `fairshare`: order namespaces and users within a queue by their present or past use of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phalanx.plugin import AccountKey, AccountRecord, AccountView, Arguments, ChargePath, Plugin, UsageDecay, View
from phalanx.scheduling.quota.usage_history import shifted_weights

Turn = tuple[bool, float]

_HIGHEST_SHIFT = 1e6


class Fairshare(Plugin):
    """Order by the dominant share divided by the weight; the smallest share is scheduled first.

    Without `fairshare.half-life` only current usage counts. With it, past usage counts too: the key is the decayed
    average (see UsageHistory) one half-life from now, if current usage does not change,

    (U + used) / 2.

    A namespace or user with much past usage therefore waits, and an allocation counts at once. (An average alone
    would change only after some time; Kueue charges an entry penalty for this reason.) With a half-life the plugin
    also orders queues, after the plugins listed before it. `fairshare.denied` charges usage twice while other pods
    wait. `fairshare.shift` (at least 0) shifts the weights for sharing the surplus towards queues that used less
    than their part (`surplus_weights`).
    """

    name = "fairshare"
    arguments = (
        "fairshare.namespaces",
        "fairshare.users",
        "fairshare.half-life",
        "fairshare.denied",
        "fairshare.shift",
    )

    def __init__(self, arguments: Arguments) -> None:
        self._namespaces = arguments.boolean("fairshare.namespaces", True)
        self._users = arguments.boolean("fairshare.users", True)
        half_life = self._half_life = arguments.duration("fairshare.half-life")
        denied = arguments.boolean("fairshare.denied", False)
        shift = min(arguments.number("fairshare.shift", 0.0, least=0), _HIGHEST_SHIFT)
        self.usage_decay = UsageDecay(half_life, denied, shift)
        if half_life is None:
            self.disabled_points = frozenset({"queue_order"})
            idle = [key for key, on in (("fairshare.denied", denied), ("fairshare.shift", shift)) if on]
            self.remarks = tuple(f"{key} has no effect without fairshare.half-life" for key in idle)

    def subqueues(self, session: View, charge_path: ChargePath) -> tuple[AccountRecord, ...]:
        levels = ((self._namespaces, charge_path.namespace), (self._users, charge_path.user))
        return tuple(account for wanted, account in levels if wanted and account is not None)

    def subqueue_order(self, session: View, account: AccountRecord) -> Turn:
        return self._turn(session, account)

    def queue_order(self, session: View, account: AccountRecord) -> Turn:
        return self._turn(session, account)

    def _turn(self, session: View, account: AccountRecord) -> Turn:
        """Return the sort key of a namespace or user: (whether the weight is 0, share by weight). Equal keys are
        ordered by name."""
        weight, amounts = max(1, account.weight), account.used
        if self._half_life is None:
            return account.weight <= 0, _dominant_share(amounts, _totals(session), weight)
        both = dict(session.history.decayed(account, session.now))
        for name, amount in amounts.items():
            both[name] = both.get(name, 0.0) + amount
        return account.weight <= 0, _dominant_share(both, _totals(session), 2 * weight)


def surplus_weights(session: AccountView, siblings: Iterable[AccountRecord]) -> dict[AccountKey, int]:
    """Return the weights by which sibling queues share the surplus, in units of 1 / WEIGHT_SCALE.

    A policy with `fairshare.shift` shifts them.
    """
    records = {record.key: record for record in siblings}
    decay, usages, shift = session.usage_decay, dict[AccountKey, float](), 0.0
    if decay.shift and decay.half_life is not None:
        totals, shift = _totals(session), decay.shift
        usages = {
            key: _dominant_share(session.history.decayed(record, session.now), totals, 1)
            for key, record in records.items()
        }
    return shifted_weights({key: record.weight for key, record in records.items()}, usages, shift)


def _dominant_share(amounts: Mapping[str, float], totals: Mapping[str, int], divisor: int) -> float:
    """Return the dominant share (Ghodsi et al., "Dominant Resource Fairness", 2011) divided by `divisor`.

    A single division of integers is rounded correctly, so equal shares by weight are equal as floats.
    """
    best = 0.0
    for name, amount in amounts.items():
        total = totals.get(name, 0)
        if total > 0:
            best = max(best, amount / (total * divisor))
    return best


def _totals(session: AccountView) -> dict[str, int]:
    """Return the total amount of every resource on all nodes."""
    return session.memo("fairshare: totals", lambda: {name: both[0] for name, both in session.totals().items()})
