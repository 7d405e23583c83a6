"""Which groups of nodes a queue may use: Volcano's spec.affinity, and what each pod is to know of it.

A queue follows the nearest queue above it that states a rule; whether that counts is up to the policy, so inherited
rules are marked. Limits per group are the queue's own and are not inherited (docs/rules/volcano.md, 1.2).
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
# Pairs of a class and its twin under a rule; beyond this many the cache starts anew.
_CACHE_SIZE = 10_000


def read_node_group_rule(reader: AccountReader) -> PoolRule | None:
    """None where the queue says nothing about groups of nodes. What cannot be read makes the queue unusable: its
    pods might go where they must not."""
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
    """Zeros are limits too, so they are kept."""
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
    """Shows each pod with the rule of its queue."""

    def __init__(self) -> None:
        self._queues: dict[str, Account] = {}
        self._stated = 0
        # By queue: the rule with which its pods were shown.
        self._rules: dict[str, PoolRule | None] = {}
        self._twins: dict[tuple[PodClass, PoolRule], PodClass] = {}

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
        """Takes note of queues; those for whose pods other rules hold than before."""
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
        return {queue for queue, rule in shown.items() if self._rule(queue) != rule}

    def _rule(self, queue: str) -> PoolRule | None:
        if queue not in self._rules:
            self._rules[queue] = self._find(queue) if self._stated else None
        return self._rules[queue]

    def _replace(self, key: AccountKey, account: Account | None) -> bool:
        """Whether rules may be others now."""
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
        """The rule of the nearest queue above that states one; a circle of parents has none."""
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
    """What of a queue rules depend on."""
    return account and (account.pools, account.parent)
