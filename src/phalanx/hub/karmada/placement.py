"""Placement policies of Karmada: the allowed clusters, read as karmada-scheduler reads them. No I/O.

A gang runs as a whole in one cluster, so a placement that divides or spreads it is refused with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from phalanx.dialects.label_selectors import IllegibleSelectorError, read_selector
from phalanx.hub.jobs.kinds import at
from phalanx.hub.objects import printable
from phalanx.model.peers import Selector, selects
from phalanx.model.selectors import Requirement, Taint, Toleration, tolerates

Json = dict[str, Any]

_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


class ClusterGroup(msgspec.Struct, frozen=True):
    """Group of clusters in a placement that is tried before all later groups; `name` is the affinity term's, ""
    without terms."""

    name: str
    affinity: Json

    def has(self, cluster: Json) -> bool:
        return affinity_allows(self.affinity, cluster)


def refusal(spec: Json) -> str:
    """Return the reason why no single cluster satisfies the placement of a binding, and the fix; "" if one can."""
    placement = spec.get("placement")
    if not isinstance(placement, dict):
        return "the binding has no placement"
    scheduling = placement.get("replicaScheduling")
    divided = isinstance(scheduling, dict) and scheduling.get("replicaSchedulingType", "Divided") != "Duplicated"
    if divided and is_workload(spec):
        return (
            "its policy divides replicas over clusters, and a gang runs as a whole in one; write "
            "placement.replicaScheduling.replicaSchedulingType: Duplicated, or remove replicaScheduling"
        )
    for constraint in _objects(placement.get("spreadConstraints")):
        min_groups = constraint.get("minGroups")
        if isinstance(min_groups, int) and min_groups > 1:
            return f"its policy spreads it over at least {min_groups} groups of clusters (spreadConstraints)"
    if placement.get("workloadAffinity"):
        return "placement.workloadAffinity is not supported"
    return ""


def is_workload(spec: Json) -> bool:
    """Return whether Karmada counts replicas of the bound object; only such an object can be divided."""
    return bool(spec.get("replicas") or spec.get("replicaRequirements") or spec.get("components"))


def cluster_groups(placement: object) -> list[ClusterGroup]:
    """Return the cluster groups of a placement in order; overflow groups follow the term that they belong to."""
    terms = at(placement, ("clusterAffinities",))
    if not isinstance(terms, list):
        affinity = at(placement, ("clusterAffinity",))
        return [ClusterGroup("", affinity if isinstance(affinity, dict) else {})]
    groups = []
    for term in _objects(terms):
        name = str(term.get("affinityName") or "")
        groups.append(ClusterGroup(name, term))
        groups += [ClusterGroup(name, overflow) for overflow in _objects(term.get("overflowAffinities"))]
    return groups


def group_of(placement: object, cluster: Json) -> ClusterGroup | None:
    """Return the first cluster group of a placement that contains the cluster."""
    return next((group for group in cluster_groups(placement) if group.has(cluster)), None)


def affinity_allows(affinity: Json, cluster: Json) -> bool:
    """Return whether a ClusterAffinity allows the cluster; an unreadable affinity allows none."""
    name = at(cluster, ("metadata", "name"))
    excluded, names = affinity.get("exclude"), affinity.get("clusterNames")
    if isinstance(excluded, list) and name in excluded:
        return False
    if isinstance(names, list) and names and name not in names:
        return False
    if (selector := affinity.get("labelSelector")) is not None:
        labels = at(cluster, ("metadata", "labels"))
        texts = {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {}
        try:
            if not selects(read_selector(selector), texts):
                return False
        except IllegibleSelectorError:
            return False
    expressions = _objects(at(affinity, ("fieldSelector", "matchExpressions")))
    return all(_field_allows(expression, cluster) for expression in expressions)


def _field_allows(expression: Json, cluster: Json) -> bool:
    """Return whether a field selector on `provider`, `region` or `zone` allows a cluster."""
    key, operator, values = expression.get("key"), expression.get("operator"), expression.get("values") or []
    if not isinstance(key, str) or not isinstance(operator, str) or not isinstance(values, list):
        return False
    if key != "zone":
        fields = {name: at(cluster, ("spec", name)) for name in ("provider", "region")}
        wanted: Selector = (Requirement(key, operator, tuple(map(str, values))),)
        return selects(wanted, {name: text for name, text in fields.items() if isinstance(text, str) and text})
    zones = at(cluster, ("spec", "zones")) or []
    zones = zones if isinstance(zones, list) else []
    match operator:
        case "In":
            return any(zone in values for zone in zones)
        case "NotIn":
            return not any(zone in values for zone in zones)
        case "Exists":
            return bool(zones)
        case "DoesNotExist":
            return not zones
    return False


def obstacle(spec: Json, cluster: Json) -> str:
    """Return the reason why a cluster that the affinity allows gets no forecast request; "" for none."""
    if at(cluster, ("metadata", "deletionTimestamp")) is not None:
        return "is leaving Karmada"
    name = at(cluster, ("metadata", "name"))
    for task in _objects(spec.get("gracefulEvictionTasks")):
        if task.get("fromCluster") == name:
            return printable(f"the gang is being evicted from it ({task.get('reason') or 'no reason given'})", 120)
    tolerations = [
        _toleration(toleration) for toleration in _objects(at(spec, ("placement", "clusterTolerations")))
    ]
    for taint in _taints(cluster):
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return printable(f"has the taint {taint}, which the policy does not tolerate", 200)
    return _unserved(spec, cluster)


def _unserved(spec: Json, cluster: Json) -> str:
    """Return the reason if Karmada has not found the binding's kind in the cluster; "" if it has."""
    version, kind = at(spec, ("resource", "apiVersion")), at(spec, ("resource", "kind"))
    for enablement in _objects(at(cluster, ("status", "apiEnablements"))):
        kinds = [resource.get("kind") for resource in _objects(enablement.get("resources"))]
        if enablement.get("groupVersion") == version and kind in kinds:
            return ""
    return printable(f"does not serve {kind} of {version}", 200)


def _taints(cluster: Json) -> Iterator[Taint]:
    for taint in _objects(at(cluster, ("spec", "taints"))):
        effect = str(taint.get("effect") or "")
        if effect in _KEEPS_AWAY:
            yield Taint(str(taint.get("key") or ""), str(taint.get("value") or ""), effect)


def _toleration(document: Json) -> Toleration:
    return Toleration(
        str(document.get("key") or ""),
        str(document.get("operator") or "Equal"),
        str(document.get("value") or ""),
        str(document.get("effect") or ""),
    )


def _objects(listed: object) -> list[Json]:
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
