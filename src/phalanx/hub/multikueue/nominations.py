"""Beside Kueue: which clusters MultiKueue is to try for a Workload, by when it would start there. Pure.

Kueue dispatches; where its configuration names an external dispatcher it creates copies of a Workload in the
clusters that `status.nominatedClusterNames` lists, and the first that admits one gets the job (docs/multikueue.md).
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
#: Who applies the part of a Workload's status that nominations are in.
MANAGER = "kueue-admission"
#: As Kueue's own incremental dispatcher: seconds until another cluster is tried as well.
ROUND_SECONDS = 300
_MOST_NAMES = 20
_MOST_PODS = 10_000


class NominationRounds(msgspec.Struct, frozen=True):
    """What is to be nominated now: `names` are all, those before included. `wait` is how long (seconds) to leave it
    so; `message` says why nothing is nominated."""

    names: tuple[str, ...] = ()
    wait: float = ROUND_SECONDS
    message: str = ""


def open_check(workload: Json, checks: Mapping[str, Json]) -> str:
    """The MultiKueue admission check that waits for a nomination; "" where there is nothing to nominate.

    `checks` are the AdmissionChecks by name. As Kueue has it: quota is reserved, the other checks are ready, no
    cluster has been chosen and nothing has ended."""
    metadata, status = workload["metadata"], workload.get("status") or {}
    if metadata.get("deletionTimestamp") or status.get("clusterName") or at(workload, ("spec", "active")) is False:
        return ""
    if _is_true(status, "Finished") or _is_true(status, "Evicted") or not _is_true(status, "QuotaReserved"):
        return ""
    found = ""
    for each in _objects(status.get("admissionChecks")):
        name = str(each.get("name") or "")
        if at(checks.get(name), ("spec", "controllerName")) == CONTROLLER:
            found = name if each.get("state") == "Pending" else ""
        elif each.get("state") != "Ready":
            return ""
    return found


def clusters_of(check: Json, configs: Mapping[str, Json]) -> tuple[str, ...]:
    """The clusters that an AdmissionCheck allows, in its order."""
    named = at(check, ("spec", "parameters", "name"))
    listed = at(configs.get(str(named)), ("spec", "clusters"))
    return tuple(each for each in listed if isinstance(each, str)) if isinstance(listed, list) else ()


def nominated(workload: Json) -> tuple[str, ...]:
    listed = at(workload, ("status", "nominatedClusterNames"))
    return tuple(each for each in listed if isinstance(each, str)) if isinstance(listed, list) else ()


def next_round(before: Sequence[str], answers: Iterable[Candidate], now: int) -> NominationRounds:
    """One cluster more: of those that were not tried the one where it starts first. Where nobody can say they are
    all tried at once, as Kueue would. Who would never start it is not tried."""
    others = [each for each in answers if each.name not in before]
    chosen = best(others, now)
    if chosen is None:
        said = "; ".join(f"{each.name}: {each.message or 'would not start it'}" for each in others)
        return NominationRounds(tuple(before), message=printable(said or "no cluster is left to try", 1000))
    if chosen.start is not None:
        more = [chosen.name]
    else:
        more = [each.name for each in others if not each.never and each.start is None]
    names = (*before, *more)[:_MOST_NAMES]
    # Nobody else is tried before the chosen one could have started.
    return NominationRounds(names, max(ROUND_SECONDS, (chosen.start or now) - now + ROUND_SECONDS))


def question(workload: Json) -> list[Json]:
    """The PodGroup and pods that stand for a Workload; none where it has too many, or none that can be read."""
    namespace, name = workload["metadata"]["namespace"], workload["metadata"]["name"]
    group, pods = GROUP_KINDS[0], list[Json]()
    for pod_set in _objects(at(workload, ("spec", "podSets"))):
        count, template = pod_set.get("count", 1), pod_set.get("template")
        if not isinstance(count, int) or not isinstance(template, dict) or len(pods) + count > _MOST_PODS:
            return []
        said = template.get("metadata") or {}
        for _ in range(count):
            metadata = {
                "name": f"{name}-{len(pods)}",
                "namespace": namespace,
                "labels": {**(said.get("labels") or {}), group.label: name},
                "annotations": dict(said.get("annotations") or {}),
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
    """The patch of the status, of the version that was read, and whether it is to be applied (else merged).

    Kueue takes nominations away by applying its part of the status without them, which takes away only what its own
    manager has applied. So they are applied in its name, together with all that it has applied; where it applies
    nothing (it merges), a merge does."""
    metadata = workload["metadata"]
    precise = {"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}
    owned = [
        fields
        for each in field_owners(metadata)
        if (each.manager, each.operation) == (MANAGER, "Apply")
        and isinstance(fields := each.fields.get("f:status"), Mapping)
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
    """The part of a value that a fieldsV1 of managedFields names."""
    inner = {key: each for key, each in fields.items() if key != "."}
    if isinstance(value, dict):
        found = {}
        for key, below in inner.items():
            name = key.removeprefix("f:")
            if key.startswith("f:") and name in value:
                found[name] = extracted(value[name], below) if below else value[name]
        return found
    if isinstance(value, list) and inner:
        items = []
        for key, below in inner.items():
            for each in value:
                if key.startswith("k:") and isinstance(each, dict) and _has(each, key[2:]):
                    items.append(extracted(each, below) if below else each)
                elif key.startswith("v:") and msgspec.json.decode(key[2:].encode()) == each:
                    items.append(each)
        return items
    return value


def _has(item: Json, keys: str) -> bool:
    named = msgspec.json.decode(keys.encode())
    return isinstance(named, dict) and all(item.get(key) == value for key, value in named.items())


def _is_true(status: Json, kind: str) -> bool:
    conditions = _objects(status.get("conditions"))
    return any((each.get("type"), each.get("status")) == (kind, "True") for each in conditions)


def _objects(listed: object) -> list[Json]:
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
