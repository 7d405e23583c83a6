"""Copies of the hub's pods and PodGroups for member clusters, and the state of these copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phalanx.dialects.dispatched import ORIGIN_LABEL, WHEN_LOST
from phalanx.hub.names import (
    CLUSTERS,
    DISPATCH_GATE,
    DISPATCH_LABEL,
    EPOCH,
    GRANT_GATE,
    ORIGIN_UID,
    RERUN_AFTER,
    RESULT_FINALIZER,
    SPILL_AFTER,
    SUSPEND,
)
from phalanx.hub.observed import CopyView, LostPolicy
from phalanx.kube.own_objects import LABELS
from phalanx.model.text.decoding import parse_whole

Json = dict[str, Any]

# Spec fields that the member cluster sets itself, by its API server, admission or scheduler.
_OF_THE_CLUSTER = ("nodeName", "priority", "preemptionPolicy", "ephemeralContainers", "serviceAccount", "overhead")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Labels and annotations for the hub only, and kubectl's last applied configuration.
_OF_THE_HUB = frozenset({CLUSTERS, DISPATCH_GATE, RERUN_AFTER, SPILL_AFTER, SUSPEND, _APPLIED})
_TOKEN_VOLUME = "kube-api-access-"
_MIRRORED = ("phase", "reason", "message", "startTime", "containerStatuses", "initContainerStatuses")
_ENDED = ("Succeeded", "Failed")


def pod_copy(pod: Json, origin: str, dispatch_uid: str, epoch: int, policy: LostPolicy) -> Json:
    """Return the gated copy of a pod for a member cluster; only the pod's own spec can end or delete it."""
    spec = {key: value for key, value in pod["spec"].items() if key not in _OF_THE_CLUSTER}
    if not spec.get("priorityClassName"):
        spec.pop("priorityClassName", None)
    spec["schedulingGates"] = [{"name": GRANT_GATE}]
    _drop_token_volumes(spec)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": copy_metadata(pod, origin, dispatch_uid, epoch, policy) | {"finalizers": [RESULT_FINALIZER]},
        "spec": spec,
    }


def group_copy(group: Json, origin: str, dispatch_uid: str, epoch: int, policy: LostPolicy, ended: int) -> Json:
    """Return the copy of a PodGroup for a member cluster; `ended` members have ended in other clusters and are not
    started again."""
    spec = dict(group.get("spec") or {})
    min_member = spec.get("minMember")
    if isinstance(min_member, int) and ended:
        spec["minMember"] = max(1, min_member - ended)
    return {
        "apiVersion": group["apiVersion"],
        "kind": group["kind"],
        "metadata": copy_metadata(group, origin, dispatch_uid, epoch, policy),
        "spec": spec,
    }


def copy_metadata(source: Json, origin: str, dispatch_uid: str, epoch: int, policy: LostPolicy) -> Json:
    """Return name, labels and annotations of a copy, with annotations that identify its original at the hub."""
    metadata = source["metadata"]
    own = {ORIGIN_UID: metadata["uid"], EPOCH: str(epoch), WHEN_LOST: policy.value}
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "labels": {**_theirs(metadata.get("labels")), **copy_labels(origin, dispatch_uid)},
        "annotations": {**_theirs(metadata.get("annotations")), **own},
    }


def _theirs(entries: object) -> dict[str, str]:
    if not isinstance(entries, Mapping):
        return {}
    return {key: value for key, value in entries.items() if key not in _OF_THE_HUB}


def copy_labels(origin: str, dispatch_uid: str) -> dict[str, str]:
    """Return the labels of copies in member clusters and of the pods of copied jobs."""
    managed = "app.kubernetes.io/managed-by"
    return {managed: LABELS[managed], ORIGIN_LABEL: origin, DISPATCH_LABEL: dispatch_uid}


def _drop_token_volumes(spec: Json) -> None:
    """Remove the volumes with tokens of the hub's API server from a copied pod; the member's API server adds its
    own."""
    volumes = [v for v in spec.get("volumes") or () if not str(v.get("name", "")).startswith(_TOKEN_VOLUME)]
    spec["volumes"] = volumes
    for key in ("containers", "initContainers"):
        if key in spec:
            spec[key] = [
                {
                    **container,
                    "volumeMounts": [
                        mount
                        for mount in container.get("volumeMounts") or ()
                        if not str(mount.get("name", "")).startswith(_TOKEN_VOLUME)
                    ],
                }
                for container in spec[key]
            ]


def startable(copy: Json) -> Json:
    """Return the copy without its scheduling gate, for a forecast of its start."""
    spec = {key: value for key, value in copy["spec"].items() if key != "schedulingGates"}
    metadata = {key: value for key, value in copy["metadata"].items() if key != "finalizers"}
    return {**copy, "metadata": metadata, "spec": spec}


def waits_for_hub(pod: Json) -> bool:
    """Return whether the dispatch gate is a pod's only gate; all other gates must be removed before a pod is
    copied."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return [gate.get("name") for gate in gates if isinstance(gate, Mapping)] == [DISPATCH_GATE]


def has_gate(pod: Json) -> bool:
    """Return whether a pod has the dispatch gate."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return any(isinstance(gate, Mapping) and gate.get("name") == DISPATCH_GATE for gate in gates)


def ended(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in _ENDED


def copy_view(pod: Json, origin: Json | None) -> CopyView:
    """Return the state of a pod's copy, compared with the pod at the hub if that exists."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    deleting = metadata.get("deletionTimestamp") is not None
    finished = deleting and (not spec.get("nodeName") or metadata.get("deletionGracePeriodSeconds") == 0)
    gates = [gate.get("name") for gate in spec.get("schedulingGates") or ()]
    return CopyView(
        metadata["name"],
        metadata["uid"],
        str(annotations.get(ORIGIN_UID) or ""),
        parse_whole(str(annotations.get(EPOCH) or ""), 0) or 0,
        GRANT_GATE in gates,
        ended=ended(pod),
        over=finished or ended(pod),
        deleting=deleting,
        held=RESULT_FINALIZER in (metadata.get("finalizers") or ()),
        failed=status.get("phase") == "Failed",
        bound=bool(spec.get("nodeName")),
        version=str(metadata.get("resourceVersion") or ""),
        news=origin is not None and mirrored(status) != mirrored(origin.get("status") or {}),
    )


def mirrored(status: Mapping[str, Any]) -> Json:
    """Return the status fields of a copy that the hub writes to the original pod."""
    return {key: value for key in _MIRRORED if (value := status.get(key))}


def suspended(group: Json) -> bool:
    annotations = group["metadata"].get("annotations") or {}
    return bool(annotations.get(SUSPEND) == "true")
