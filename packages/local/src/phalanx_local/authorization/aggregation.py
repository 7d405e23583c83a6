"""Aggregated ClusterRoles: their rules are those of the roles that their selectors match.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles
"""

from __future__ import annotations

from phalanx.model.matching import all_hold
from phalanx_local.authorization.rbac import CLUSTER_ROLES, GROUP
from phalanx_local.objects import Json, mapping, sequence
from phalanx_local.registry.api import Api
from phalanx_local.registry.selectors import selector_from_object
from phalanx_local.storage.records import Record


def is_aggregated(role: Json) -> bool:
    return bool(mapping(role.get("aggregationRule")))


def aggregate(api: Api, record: Record) -> None:
    """Replace the rules of an aggregated ClusterRole by those of the roles that its selectors match, if they
    differ."""
    role = record.load()
    if not is_aggregated(role):
        return
    listed = sequence(mapping(role["aggregationRule"]).get("clusterRoleSelectors"))
    selectors = [selector for item in listed if (selector := selector_from_object(item)) is not None]
    collection = api.store.collections[CLUSTER_ROLES]
    rules: list[Json] = []
    for key in collection.keys(""):
        candidate = collection.records[key]
        if candidate.name == record.name or not any(all_hold(selector, candidate.labels) for selector in selectors):
            continue
        rules.extend(rule for rule in sequence(candidate.load().get("rules")) if rule not in rules)
    if role.get("rules") != rules:
        role["rules"] = rules
        api.save(api.type(GROUP, "clusterroles"), record, role, record.load(), api.write())
