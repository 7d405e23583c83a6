"""Nominations for MultiKueue: the clusters to try for a Workload, by forecast start. No I/O.

Kueue dispatches. With an external dispatcher in its configuration, it creates copies of a Workload in the clusters
of `status.nominatedClusterNames`, and the first cluster that admits one gets the job (docs/multikueue.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from phalanx.dialects.field_owners import field_owners
from phalanx.hub.choice.assignment import Candidate, best
from phalanx.hub.jobs.kinds import at
from phalanx.hub.names import GROUP_KINDS
from phalanx.hub.objects import printable
from phalanx.kube.paths import Resource

Json = dict[str, Any]

KUEUE = "kueue.x-k8s.io"
VERSION = "v1beta2"
WORKLOADS = Resource(KUEUE, VERSION, "workloads", "Workload")
ADMISSION_CHECKS = Resource(KUEUE, VERSION, "admissionchecks", "AdmissionCheck", namespaced=False)
CONFIGS = Resource(KUEUE, VERSION, "multikueueconfigs", "MultiKueueConfig", namespaced=False)
CLUSTERS = Resource(KUEUE, VERSION, "multikueueclusters", "MultiKueueCluster", namespaced=False)
CONTROLLER = "kueue.x-k8s.io/multikueue"
#: Field manager of the part of a Workload's status that contains nominations.
MANAGER = "kueue-admission"
#: Seconds until a further cluster is tried, as in Kueue's own incremental dispatcher.
ROUND_SECONDS = 300
_MOST_NAMES = 20
_MOST_PODS = 10_000


class NominationRounds(msgspec.Struct, frozen=True):
    """Next nomination of clusters for a Workload.

    `names` are all clusters including earlier ones, `wait` is the seconds until the next round, and `message` is
    the reason for no nomination.
    """

    names: tuple[str, ...] = ()
    wait: float = ROUND_SECONDS
    message: str = ""


def open_check(workload: Json, checks: Mapping[str, Json]) -> str:
    """Return the name of the MultiKueue admission check for which a Workload waits for a nomination; "" for none.

    `checks` are the AdmissionChecks by name. Kueue's conditions: quota is reserved, all other checks are ready, no
    cluster is chosen, and the Workload has not ended.
    """
    metadata, status = workload["metadata"], workload.get("status") or {}
    if metadata.get("deletionTimestamp") or status.get("clusterName") or at(workload, ("spec", "active")) is False:
        return ""
    if _is_true(status, "Finished") or _is_true(status, "Evicted") or not _is_true(status, "QuotaReserved"):
        return ""
    pending_check = ""
    for state in _objects(status.get("admissionChecks")):
        name = str(state.get("name") or "")
        if at(checks.get(name), ("spec", "controllerName")) == CONTROLLER:
            pending_check = name if state.get("state") == "Pending" else ""
        elif state.get("state") != "Ready":
            return ""
    return pending_check


def clusters_of(check: Json, configs: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the clusters that an AdmissionCheck allows, in its order."""
    named = at(check, ("spec", "parameters", "name"))
    listed = at(configs.get(str(named)), ("spec", "clusters"))
    return tuple(name for name in listed if isinstance(name, str)) if isinstance(listed, list) else ()


def nominated(workload: Json) -> tuple[str, ...]:
    listed = at(workload, ("status", "nominatedClusterNames"))
    return tuple(name for name in listed if isinstance(name, str)) if isinstance(listed, list) else ()


def next_round(before: Sequence[str], answers: Iterable[Candidate], now: int) -> NominationRounds:
    """Return the next nomination for a Workload: one more cluster, the untried one with the earliest start.

    Without any forecast all remaining clusters are tried at once, as in Kueue. A cluster that would never start the
    Workload is not tried.
    """
    untried = [candidate for candidate in answers if candidate.name not in before]
    chosen = best(untried, now)
    if chosen is None:
        reasons = "; ".join(
            f"{candidate.name}: {candidate.message or 'would not start it'}" for candidate in untried
        )
        return NominationRounds(tuple(before), message=printable(reasons or "no cluster is left to try", 1000))
    if chosen.start is not None:
        added = [chosen.name]
    else:
        added = [candidate.name for candidate in untried if not candidate.never and candidate.start is None]
    names = (*before, *added)[:_MOST_NAMES]
    # No further cluster is tried before the expected start in the chosen one.
    return NominationRounds(names, max(ROUND_SECONDS, (chosen.start or now) - now + ROUND_SECONDS))


def question(workload: Json) -> list[Json]:
    """Return the PodGroup and pods that represent a Workload in a forecast; none for too many or unreadable
    pods."""
    namespace, name = workload["metadata"]["namespace"], workload["metadata"]["name"]
    group, pods = GROUP_KINDS[0], list[Json]()
    for pod_set in _objects(at(workload, ("spec", "podSets"))):
        count, template = pod_set.get("count", 1), pod_set.get("template")
        if not isinstance(count, int) or not isinstance(template, dict) or len(pods) + count > _MOST_PODS:
            return []
        template_metadata = template.get("metadata") or {}
        for _ in range(count):
            metadata = {
                "name": f"{name}-{len(pods)}",
                "namespace": namespace,
                "labels": {**(template_metadata.get("labels") or {}), group.label: name},
                "annotations": dict(template_metadata.get("annotations") or {}),
            }
            spec = dict(template.get("spec") or {})
            pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    head = {
        "apiVersion": group.resource.api_version,
        "kind": group.resource.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": max(1, len(pods))},
    }
    return [head, *pods] if pods else []


def nomination(workload: Json, names: Sequence[str]) -> tuple[Json, bool]:
    """Return the status patch that nominates clusters, based on the read version, and whether it is applied (else
    merged).

    Kueue removes nominations by applying its part of the status without them, which removes only fields that its
    own manager has applied. So they are applied in its name, together with all its fields; if it applies none, they
    are merged.
    """
    metadata = workload["metadata"]
    precise = {"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}
    owned = [
        fields
        for owner in field_owners(metadata)
        if (owner.manager, owner.operation) == (MANAGER, "Apply")
        and isinstance(fields := owner.fields.get("f:status"), Mapping)
    ]
    if not owned:
        return {"metadata": precise, "status": {"nominatedClusterNames": list(names)}}, False
    status = extracted(workload.get("status") or {}, owned[0])
    document = {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], **precise},
        "status": {**(status if isinstance(status, dict) else {}), "nominatedClusterNames": list(names)},
    }
    return document, True


def extracted(value: Any, fields: Mapping[str, Any]) -> Any:
    """Return the part of an object that a fieldsV1 of managedFields names."""
    inner = {key: item for key, item in fields.items() if key != "."}
    if isinstance(value, dict):
        fields_of_value = {}
        for key, below in inner.items():
            name = key.removeprefix("f:")
            if key.startswith("f:") and name in value:
                fields_of_value[name] = extracted(value[name], below) if below else value[name]
        return fields_of_value
    if isinstance(value, list) and inner:
        items = []
        for key, below in inner.items():
            for item in value:
                if key.startswith("k:") and isinstance(item, dict) and _has(item, key[2:]):
                    items.append(extracted(item, below) if below else item)
                elif key.startswith("v:") and msgspec.json.decode(key[2:].encode()) == item:
                    items.append(item)
        return items
    return value


def _has(item: Json, keys: str) -> bool:
    named = msgspec.json.decode(keys.encode())
    return isinstance(named, dict) and all(item.get(key) == value for key, value in named.items())


def _is_true(status: Json, kind: str) -> bool:
    conditions = _objects(status.get("conditions"))
    return any((condition.get("type"), condition.get("status")) == (kind, "True") for condition in conditions)


def _objects(listed: object) -> list[Json]:
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
