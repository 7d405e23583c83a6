"""Which clusters a placement of Karmada allows, read as karmada-scheduler reads it. Pure.

A gang goes whole to one cluster, so what divides or spreads it is refused by a sentence.
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
    """Clusters of which one is chosen before any of a later group. `name` is the affinity term's, "" where the
    placement has no terms."""

    name: str
    affinity: Json

    def has(self, cluster: Json) -> bool:
        return affinity_allows(self.affinity, cluster)


def refusal(spec: Json) -> str:
    """Why no single cluster can satisfy the placement of a binding, and what to do; "" where one can."""
    placement = spec.get("placement")
    if not isinstance(placement, dict):
        return "it has no placement"
    scheduling = placement.get("replicaScheduling")
    divided = isinstance(scheduling, dict) and scheduling.get("replicaSchedulingType", "Divided") != "Duplicated"
    if divided and is_workload(spec):
        return (
            "its policy divides replicas over clusters, and a gang goes whole to one; write "
            "placement.replicaScheduling.replicaSchedulingType: Duplicated, or leave replicaScheduling out"
        )
    for each in _objects(placement.get("spreadConstraints")):
        least = each.get("minGroups")
        if isinstance(least, int) and least > 1:
            return f"its policy spreads it over at least {least} groups of clusters (spreadConstraints)"
    if placement.get("workloadAffinity"):
        return "placement.workloadAffinity is not read here"
    return ""


def is_workload(spec: Json) -> bool:
    """Whether Karmada counts its replicas; what it does not is never divided."""
    return bool(spec.get("replicas") or spec.get("replicaRequirements") or spec.get("components"))


def cluster_groups(placement: object) -> list[ClusterGroup]:
    """In the order in which they are tried; overflow groups come after the term that they belong to."""
    terms = at(placement, ("clusterAffinities",))
    if not isinstance(terms, list):
        affinity = at(placement, ("clusterAffinity",))
        return [ClusterGroup("", affinity if isinstance(affinity, dict) else {})]
    found = []
    for term in _objects(terms):
        name = str(term.get("affinityName") or "")
        found.append(ClusterGroup(name, term))
        found += [ClusterGroup(name, each) for each in _objects(term.get("overflowAffinities"))]
    return found


def group_of(placement: object, cluster: Json) -> ClusterGroup | None:
    """The first group that has the cluster."""
    return next((each for each in cluster_groups(placement) if each.has(cluster)), None)


def affinity_allows(affinity: Json, cluster: Json) -> bool:
    """A ClusterAffinity. What cannot be read allows nothing."""
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
    return all(_field_allows(each, cluster) for each in expressions)


def _field_allows(expression: Json, cluster: Json) -> bool:
    """About `provider`, `region` or `zone`; a cluster may be in several zones."""
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
    """Why a cluster that the affinity allows is not asked; "" for one that is."""
    if at(cluster, ("metadata", "deletionTimestamp")) is not None:
        return "leaves Karmada"
    name = at(cluster, ("metadata", "name"))
    for task in _objects(spec.get("gracefulEvictionTasks")):
        if task.get("fromCluster") == name:
            return printable(f"it is being evicted from there ({task.get('reason') or 'no reason given'})", 120)
    tolerations = [_toleration(each) for each in _objects(at(spec, ("placement", "clusterTolerations")))]
    for taint in _taints(cluster):
        if not any(tolerates(each, taint) for each in tolerations):
            return printable(f"has the taint {taint}, which the policy does not tolerate", 200)
    return _unserved(spec, cluster)


def _unserved(spec: Json, cluster: Json) -> str:
    """By what Karmada has found in the cluster."""
    version, kind = at(spec, ("resource", "apiVersion")), at(spec, ("resource", "kind"))
    for each in _objects(at(cluster, ("status", "apiEnablements"))):
        kinds = [resource.get("kind") for resource in _objects(each.get("resources"))]
        if each.get("groupVersion") == version and kind in kinds:
            return ""
    return printable(f"does not serve {kind} of {version}", 200)


def _taints(cluster: Json) -> Iterator[Taint]:
    for each in _objects(at(cluster, ("spec", "taints"))):
        effect = str(each.get("effect") or "")
        if effect in _KEEPS_AWAY:
            yield Taint(str(each.get("key") or ""), str(each.get("value") or ""), effect)


def _toleration(said: Json) -> Toleration:
    return Toleration(
        str(said.get("key") or ""),
        str(said.get("operator") or "Equal"),
        str(said.get("value") or ""),
        str(said.get("effect") or ""),
    )


def _objects(listed: object) -> list[Json]:
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
