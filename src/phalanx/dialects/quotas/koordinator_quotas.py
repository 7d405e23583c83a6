"""Koordinator's hierarchical quotas: ElasticQuotas with labels that form trees (docs/rules/coscheduling.md,
3.6)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.quotas.account_spec import AccountSpec, Place
from phalanx.dialects.quotas.elastic_quotas import QuotaReader
from phalanx.dialects.reader import Document, describe
from phalanx.model.account import (
    KOORDINATOR_DEFAULT,
    KOORDINATOR_NAMESPACE,
    KOORDINATOR_ROOT,
    KOORDINATOR_SYSTEM,
    Account,
    AccountKey,
    Limits,
    Tree,
    limits_of,
)
from phalanx.model.gang import Problem
from phalanx.model.text.decoding import decode_json

PREFIX = "quota.scheduling.koordinator.sh/"
NAMESPACE = KOORDINATOR_NAMESPACE
ROOT, SYSTEM, DEFAULT = KOORDINATOR_ROOT, KOORDINATOR_SYSTEM, KOORDINATOR_DEFAULT

PARENT = f"{PREFIX}parent"
IS_PARENT = f"{PREFIX}is-parent"
_IS_ROOT = f"{PREFIX}is-root"
TREE_ID = f"{PREFIX}tree-id"
LENDS = f"{PREFIX}allow-lent-resource"
_WEIGHT = f"{PREFIX}shared-weight"
_NAMESPACES = f"{PREFIX}namespaces"
_TOTAL = f"{PREFIX}total-resource"
_UNSCHEDULABLE = f"{PREFIX}unschedulable-resource"


def is_koordinators(document: Document) -> bool:
    """Return whether an ElasticQuota of the older group is Koordinator's, and not a flat one."""
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping):
        return False
    if metadata.get("namespace") == NAMESPACE:
        return True
    maps = (metadata.get("labels"), metadata.get("annotations"))
    return any(str(key).startswith(PREFIX) for keys in maps if isinstance(keys, Mapping) for key in keys)


def quota_key(name: str, forest: str = "") -> AccountKey:
    return AccountKey(Tree.KOORDINATOR, name, forest)


def implied_quota(key: AccountKey) -> Account:
    """Return a built-in Koordinator quota that has no object. The system and default quotas are outside the
    tree."""
    return Account(key, label=f"quota {key.name}", parental=key.name == ROOT)


def read_quota(resource: ServedKind, document: Document) -> AccountSpec:
    reader = _Reader(resource, document)
    ref = reader.ref
    maximum = reader.amounts(reader.spec.get("max"), "spec.max")
    minimum = reader.amounts(reader.spec.get("min"), "spec.min")
    weights = reader.annotated_amounts(_WEIGHT) or {}
    forest = reader.labels.get(TREE_ID, "")
    account = Account(
        key=quota_key(ref.name, forest),
        uid=ref.uid,
        label=f"ElasticQuota {ref.namespace}/{ref.name}",
        source=ref,
        parent=reader.parent(forest),
        parental=ref.name == ROOT or reader.labels.get(IS_PARENT) == "true",
        deserved=reader.below(minimum, "spec.min", maximum, "spec.max", "MinExceedsMax"),
        capability=limits_of(maximum),
        # Weights of zero count as unstated: then the maximum is the weight.
        weights=limits_of(weights) if any(weights.values()) else (),
        namespaces=reader.namespaces(),
        lends=reader.labels.get(LENDS) != "false",
        total=reader.total(),
        budget=reader.budget(),
        min_run_time=reader.min_run_time(),
        eviction_rate=reader.eviction_rate(),
        self_protection=reader.self_protection(),
        max_protection=reader.max_protection(),
        created=reader.created,
        problem=reader.problem,
        warnings=tuple(reader.warnings),
    )
    # Names are unique over all trees: a pod names its quota without the tree.
    return AccountSpec(ref, Place(Tree.KOORDINATOR, ref.name), reader.rank(), (account,), "DuplicateQuotaName")


class _Reader(QuotaReader):
    def parent(self, forest: str) -> AccountKey | None:
        if self.ref.name in (ROOT, SYSTEM, DEFAULT):
            return None
        return quota_key(self.labels.get(PARENT) or ROOT, forest)

    def namespaces(self) -> tuple[str, ...]:
        text = self.annotations.get(_NAMESPACES, "")
        if not text:
            return ()
        try:
            return tuple(sorted(set(decode_json(text, list[str]))))
        except msgspec.DecodeError:
            advice = 'write a JSON list such as ["team-a", "team-b"]; the value is ignored'
            self.warn("InvalidAnnotation", f"annotation {_NAMESPACES}", text, advice)
            return ()

    def total(self) -> Limits | None:
        """Return the resources of a quota tree, if its root states them: the total without unschedulable
        amounts."""
        if self.labels.get(_IS_ROOT) != "true":
            return None
        total = self.annotated_amounts(_TOTAL)
        if total is None:
            return None
        unschedulable = self.annotated_amounts(_UNSCHEDULABLE) or {}
        for name, amount in unschedulable.items():
            if amount > total.get(name, 0):
                message = f"annotation {_UNSCHEDULABLE}: {name} exceeds the total; 0 is used"
                self.warnings.append(Problem("InvalidAnnotation", f"{describe(self.ref)}: {message}"))
        return limits_of({name: max(0, amount - unschedulable.get(name, 0)) for name, amount in total.items()})
