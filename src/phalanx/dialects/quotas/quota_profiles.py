"""Koordinator's ElasticQuotaProfile: a quota tree over selected nodes (docs/rules/coscheduling.md, 3.6)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

import msgspec

from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.label_selectors import IllegibleSelectorError, Selector, read_selector, selects
from phalanx.dialects.quotas import koordinator_quotas
from phalanx.dialects.quotas.account_index import Address
from phalanx.dialects.quotas.account_spec import AccountReader, AccountSpec, Place
from phalanx.dialects.reader import Document, show
from phalanx.model.account import Account, Tree, limits_of
from phalanx.model.node import Node
from phalanx.model.resources import CPU, MEMORY
from phalanx.model.text.decoding import decode_json

GROUP = "quota.koordinator.sh"
PLURAL = "elasticquotaprofiles"

_RESOURCE_KEYS = f"{koordinator_quotas.PREFIX}resource-keys"
_RATIO = re.compile(r"[0-9]{1,9}(\.[0-9]{1,18})?|\.[0-9]{1,18}")
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


class QuotaProfileIndex:
    """Quotas that ElasticQuotaProfiles declare for the present nodes.

    A profile declares the root of a tree that shares the resources of its nodes, times `resourceRatio`; this is
    also the root's min, for the resources of the annotation `resource-keys` (Koordinator, profile_controller.go).
    An ElasticQuota of the same name, as Koordinator's controller writes it, has precedence.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._profiles: dict[Address, _Profile] = {}

    def read(self, address: Address, document: Document) -> AccountSpec:
        profile = self._profiles[address] = _Profile(address, document)
        for node in self._nodes.values():
            profile.add(node, 1)
        return profile.spec()

    def forget(self, address: Address) -> None:
        self._profiles.pop(address, None)

    def node_changed(self, last: Node | None, now: Node | None) -> Iterator[tuple[Address, AccountSpec]]:
        """Yield the declared quotas of the ElasticQuotaProfiles that a node change affects."""
        for address, profile in sorted(self._profiles.items()):
            removed = last is not None and profile.add(last, -1)
            added = now is not None and profile.add(now, 1)
            if removed or added:
                yield address, profile.spec()


class _Profile:
    def __init__(self, address: Address, document: Document) -> None:
        reader = self._reader = _ProfileReader(address[0], document)
        self._name = reader.text("quotaName")
        if not self._name:
            reader.refuse("spec.quotaName", reader.spec.get("quotaName"), "write the name of the quota")
        self._selector = reader.selector()
        self._ratio = reader.ratio()
        self._keys = reader.resource_keys()
        self._labels = reader.quota_labels()
        self._budget = reader.budget()
        self._min_run_time, self._eviction_rate = reader.min_run_time(), reader.eviction_rate()
        self._self_protection, self._max_protection = reader.self_protection(), reader.max_protection()
        self._total: dict[str, int] = {}

    def add(self, node: Node, sign: int) -> bool:
        """Add (`sign` 1) or subtract (-1) the resources of a node that the profile selects; return whether its
        total changed."""
        if self._selector is None or not selects(self._selector, dict(node.labels)):
            return False
        for name, amount in node.allocatable:
            self._total[name] = self._total.get(name, 0) + sign * amount
        return True

    def spec(self) -> AccountSpec:
        reader, labels = self._reader, self._labels
        ref, rank = reader.ref, reader.rank(1)
        warnings = (*reader.problems, *reader.warnings)
        if reader.problems:
            # The quota or the nodes are unknown: it shares nothing.
            place = Place(Tree.KOORDINATOR, self._name or f"{ref.namespace}/{ref.name}")
            return AccountSpec(ref, place, rank, (), "", warnings)
        total = {name: int(amount * self._ratio) for name, amount in self._total.items() if amount}
        forest = reader.tree_id()
        account = Account(
            key=koordinator_quotas.quota_key(self._name, forest),
            uid=ref.uid,
            label=f"ElasticQuotaProfile {ref.namespace}/{ref.name}",
            source=ref,
            parent=koordinator_quotas.quota_key(
                labels.get(koordinator_quotas.PARENT) or koordinator_quotas.ROOT, forest
            ),
            parental=labels.get(koordinator_quotas.IS_PARENT) == "true",
            deserved=limits_of({name: total.get(name, 0) for name in self._keys}),
            lends=labels.get(koordinator_quotas.LENDS) != "false",
            total=limits_of(total),
            budget=self._budget,
            min_run_time=self._min_run_time,
            eviction_rate=self._eviction_rate,
            self_protection=self._self_protection,
            max_protection=self._max_protection,
            created=reader.created,
        )
        return AccountSpec(ref, Place(Tree.KOORDINATOR, self._name), rank, (account,), "", warnings)


def node_selector_of(resource: ServedKind, document: Document) -> Selector | None:
    """Decode the selector for the nodes of an ElasticQuotaProfile; None if unreadable."""
    return _ProfileReader(resource, document).selector()


class _ProfileReader(AccountReader):
    code = "InvalidElasticQuotaProfile"

    def selector(self) -> Selector | None:
        stated = self.spec.get("nodeSelector")
        if not isinstance(stated, Mapping):
            self.refuse("spec.nodeSelector", stated, "write a selector such as {matchLabels: {pool: gpu}}")
            return None
        try:
            return read_selector(stated)
        except IllegibleSelectorError as error:
            self.refuse("spec.nodeSelector", stated, str(error))
            return None

    def ratio(self) -> Fraction:
        value = self.spec.get("resourceRatio")
        if value is None:
            return Fraction(1)
        text = value if isinstance(value, str) else show(value)
        ratio = Fraction(text) if _RATIO.fullmatch(text) else Fraction(0)
        if 0 < ratio <= 1:
            return ratio
        self.warn("InvalidResourceRatio", "spec.resourceRatio", value, 'write a text such as "0.9"; 1 is used')
        return Fraction(1)

    def resource_keys(self) -> tuple[str, ...]:
        text = self.annotations.get(_RESOURCE_KEYS, "")
        if text:
            try:
                return tuple(decode_json(text, list[str]))
            except msgspec.DecodeError:
                advice = 'write a JSON list such as ["cpu", "memory"]; those two are used'
                self.warn("InvalidAnnotation", f"annotation {_RESOURCE_KEYS}", text, advice)
        return (CPU, MEMORY)

    def quota_labels(self) -> dict[str, str]:
        stated = self.spec.get("quotaLabels")
        if not isinstance(stated, Mapping):
            return {}
        return {str(key): value if isinstance(value, str) else show(value) for key, value in stated.items()}

    def tree_id(self) -> str:
        """Return the quota tree id from the profile's label, else the FNV-1a hash of its name, as Koordinator
        does."""
        stated = self.labels.get(koordinator_quotas.TREE_ID, "")
        if stated:
            return stated
        value = _FNV_OFFSET
        for byte in f"{self.ref.namespace}/{self.ref.name}".encode():
            value = (value ^ byte) * _FNV_PRIME % 2**64
        return str(value)
