"""Node groups that a queue can use: Volcano's spec.affinity, applied to each pod of the queue.

A queue inherits the rule of the nearest parent queue that states one. The policy decides whether inherited rules
apply, so they are marked. Limits per group are the queue's own and are not inherited (docs/rules/volcano.md, 1.2).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.dialects.enricher import PodEnricher
from phalanx.dialects.quotas.account_spec import AccountReader
from phalanx.model.account import ROOT_QUEUE, Account, AccountKey, Tree
from phalanx.model.events import AccountRemoved, AccountUpdated, ClusterEvent
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod, PodClass
from phalanx.model.pools import PoolRule
from phalanx.model.resources import Requests, parse_amount
from phalanx.model.text.decoding import decode_json
from phalanx.model.text.quantity import QuantityError

LIMITS = "volcano.sh/nodegroup-resource-limits"

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
# Limit for pairs of a class and its counterpart under a rule; a cache with more entries is cleared.
_CACHE_SIZE = 10_000


def read_node_group_rule(reader: AccountReader) -> PoolRule | None:
    """Decode which node groups a queue can use; None if it does not state it. An unreadable rule makes the queue
    unusable, since its pods could be placed on forbidden nodes."""
    limits = _limits(reader)
    affinity = reader.spec.get("affinity")
    if affinity is None:
        return PoolRule(queue=reader.ref.name, limits=limits) if limits else None
    if not isinstance(affinity, Mapping):
        reader.refuse("spec.affinity", affinity, "write {nodeGroupAffinity: ..., nodeGroupAntiAffinity: ...}")
        return None
    towards = _part(reader, affinity, "nodeGroupAffinity")
    away = _part(reader, affinity, "nodeGroupAntiAffinity")
    return PoolRule(
        required=_names(reader, towards, "nodeGroupAffinity", _REQUIRED),
        preferred=_names(reader, towards, "nodeGroupAffinity", _PREFERRED),
        forbidden=_names(reader, away, "nodeGroupAntiAffinity", _REQUIRED),
        avoided=_names(reader, away, "nodeGroupAntiAffinity", _PREFERRED),
        queue=reader.ref.name,
        limits=limits,
    )


def _part(reader: AccountReader, affinity: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = affinity.get(name)
    if value is None or isinstance(value, Mapping):
        return value or {}
    reader.refuse(f"spec.affinity.{name}", value, f"write {{{_REQUIRED}: [group]}}")
    return {}


def _names(reader: AccountReader, part: Mapping[str, object], name: str, key: str) -> tuple[str, ...]:
    value = part.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(group, str) and group for group in value):
        reader.refuse(f"spec.affinity.{name}.{key}", value, "write a list of names of node groups")
        return ()
    return tuple(dict.fromkeys(value))


def _limits(reader: AccountReader) -> tuple[tuple[str, Requests], ...]:
    """Decode a queue's limits per node group, zeros included."""
    text = reader.annotations.get(LIMITS, "")
    if not text:
        return ()
    try:
        stated = decode_json(text, dict[str, dict[str, str | int | float]])
        limits = {
            group: tuple(sorted((name, parse_amount(name, amount)) for name, amount in amounts.items()))
            for group, amounts in stated.items()
        }
    except (msgspec.DecodeError, QuantityError):
        reader.refuse(f"annotation {LIMITS}", text, 'write JSON such as {"fast": {"cpu": "100"}}')
        return ()
    if any(amount < 0 for amounts in limits.values() for _, amount in amounts):
        reader.refuse(f"annotation {LIMITS}", text, "amounts cannot be negative")
        return ()
    return tuple(sorted(limits.items()))


class NodeGroupEnricher(PodEnricher):
    """Adds to each pod which node groups its queue can use."""

    def __init__(self) -> None:
        self._queues: dict[str, Account] = {}
        self._stated = 0
        # Rules that were applied to published pods, by queue.
        self._rules: dict[str, PoolRule | None] = {}
        self._twins: dict[tuple[PodClass, PoolRule], PodClass] = {}

    @property
    def idle(self) -> bool:
        return not self._stated

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        rule = self._rule(gang.queue if gang is not None else spec.queue)
        if rule is None:
            return spec
        twin = self._twins.get((spec.pod_class, rule))
        if twin is None:
            if len(self._twins) >= _CACHE_SIZE:
                self._twins.clear()
            twin = msgspec.structs.replace(spec.pod_class, pool=rule)
            self._twins[spec.pod_class, rule] = twin
        return msgspec.structs.replace(spec, pod_class=twin)

    def accounts_changed(self, events: list[ClusterEvent]) -> set[str]:
        """Process changed queues; return the queues whose node groups have changed."""
        changed = False
        for event in events:
            match event:
                case AccountUpdated(account) if account.key.tree is Tree.QUEUE:
                    changed |= self._replace(account.key, account)
                case AccountRemoved(key) if key.tree is Tree.QUEUE:
                    changed |= self._replace(key, None)
        if not changed:
            return set()
        shown, self._rules = self._rules, {}
        # Pods were published without a rule while no queue stated one.
        return {queue for queue in {*shown, *self._queues} if self._rule(queue) != shown.get(queue)}

    def _rule(self, queue: str) -> PoolRule | None:
        if queue not in self._rules:
            self._rules[queue] = self._find(queue) if self._stated else None
        return self._rules[queue]

    def _replace(self, key: AccountKey, account: Account | None) -> bool:
        """Replace a queue; return whether the node groups of any queue can change."""
        last = self._queues.pop(key.name, None)
        if account is not None:
            self._queues[key.name] = account
        self._stated += _states(account) - _states(last)
        return _facts(last) != _facts(account) and bool(self._stated or _states(last))

    def _find(self, queue: str) -> PoolRule | None:
        account = self._queues.get(queue)
        own = account.pools if account is not None else None
        if own is not None and own.names_groups:
            return own
        above = self._above(account)
        if above is None:
            return own
        limits = own.limits if own is not None else ()
        return msgspec.structs.replace(above, inherited=True, queue=queue, limits=limits)

    def _above(self, account: Account | None) -> PoolRule | None:
        """Return the node group rule of the nearest parent queue that states one; None for a cycle of parents."""
        seen = set()
        while account is not None and account.key.name not in seen and account.key.name != ROOT_QUEUE:
            seen.add(account.key.name)
            account = self._queues.get(account.parent.name if account.parent is not None else ROOT_QUEUE)
            if account is not None and account.pools is not None and account.pools.names_groups:
                return account.pools
        return None


def _states(account: Account | None) -> int:
    return 1 if account is not None and account.pools is not None else 0


def _facts(account: Account | None) -> object:
    """Return the properties of a queue that determine its node groups."""
    return account and (account.pools, account.parent)
