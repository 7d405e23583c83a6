"""Deployments: one ReplicaSet per version of the pod template, and rollouts from one ReplicaSet to the next."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from phalanx_local.controllers.pod_owner import PodOwner, number
from phalanx_local.endpoints.subresources import set_condition
from phalanx_local.objects import Json, clone, dig, encode, mapping, metadata
from phalanx_local.registry.resources import ResourceType
from phalanx_local.storage.records import Record

REPLICA_SETS = "apps/replicasets"
_HASH = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"


class DeploymentController(PodOwner):
    """Controller of apps/v1 Deployments; it scales old ReplicaSets down as pods of the new ReplicaSet become
    available."""

    storage = "apps/deployments"
    owned = REPLICA_SETS

    def sync(self, type_: ResourceType, record: Record) -> None:
        obj = record.load()
        spec = mapping(obj.get("spec"))
        if spec.get("paused") is True:
            return
        template = mapping(spec.get("template"))
        digest = hashlib.sha256(encode(_sorted(template))).hexdigest()[:10]
        sets = self.dependents(record)
        current = next((item for item in sets if item.labels.get(_HASH) == digest), None)
        if current is None:
            revision = max((int(item.load()["metadata"]["annotations"][_REVISION]) for item in sets), default=0)
            current = self._make_set(type_, record, obj, digest, revision + 1)
        old = [item for item in sets if item.uid != current.uid]
        self._roll(spec, current, old)
        self._report(type_, record, obj, digest)

    def _make_set(self, type_: ResourceType, record: Record, obj: Json, digest: str, revision: int) -> Record:
        spec = clone(mapping(obj.get("spec")))
        template = spec["template"]
        labels = metadata(template).setdefault("labels", {})
        labels[_HASH] = digest
        selector = spec["selector"]
        selector.setdefault("matchLabels", {})[_HASH] = digest
        body: Json = {
            "metadata": {
                "name": f"{record.name}-{digest}",
                "labels": dict(labels),
                "annotations": {_REVISION: str(revision)},
            },
            "spec": {"replicas": 0, "selector": selector, "template": template},
        }
        version = self.types()[REPLICA_SETS].preferred
        body = self.controlled(type_, record, body)
        return self.api.create(version, record.namespace, body, self.api.write())

    def _roll(self, spec: Json, current: Record, old: list[Record]) -> None:
        wanted = number(spec.get("replicas"), 1)
        recreate = dig(spec, "strategy", "type") == "Recreate"
        surge = _share(dig(spec, "strategy", "rollingUpdate", "maxSurge"), wanted, up=True)
        unavailable = _share(dig(spec, "strategy", "rollingUpdate", "maxUnavailable"), wanted, up=False)
        if not surge and not unavailable:
            unavailable = 1
        if recreate:
            for item in old:
                self._scale(item, 0)
            if all(_status(item, "replicas") == 0 for item in old):
                self._scale(current, wanted)
            return
        size = _size(current)
        room = wanted + surge - size - sum(map(_size, old))
        current = self._scale(current, min(wanted, size + max(0, room)))
        # Unavailable old pods are removed first; available ones only as far as maxUnavailable allows.
        available = sum(map(_serving, (current, *old)))
        removable = max(0, available - (wanted - unavailable))
        for item in old:
            serving = _serving(item)
            removed = min(serving, removable)
            removable -= removed
            self._scale(item, serving - removed)

    def _scale(self, record: Record, replicas: int) -> Record:
        if _size(record) == replicas:
            return record
        obj = record.load()
        obj["spec"]["replicas"] = replicas
        return self.save(self.types()[REPLICA_SETS], record, obj)

    def _report(self, type_: ResourceType, record: Record, obj: Json, digest: str) -> None:
        sets = self.dependents(record)
        wanted = number(dig(obj, "spec", "replicas"), 1)
        total = sum(_status(item, "replicas") for item in sets)
        available = sum(_status(item, "availableReplicas") for item in sets)
        updated = sum(_status(item, "replicas") for item in sets if item.labels.get(_HASH) == digest)
        counts = {
            "observedGeneration": metadata(obj).get("generation", 1),
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": sum(_status(item, "readyReplicas") for item in sets),
            "availableReplicas": available,
            "unavailableReplicas": max(0, wanted - available),
        }
        status: Json = {key: value for key, value in counts.items() if value}
        conditions = dig(obj, "status", "conditions")
        status["conditions"] = [dict(item) for item in conditions] if conditions else []
        unavailable = _share(dig(obj, "spec", "strategy", "rollingUpdate", "maxUnavailable"), wanted, up=False)
        enough = available >= wanted - unavailable
        _set_timed(
            status,
            "Available",
            enough,
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            f"Deployment {'has' if enough else 'does not have'} minimum availability.",
            self.api.now(),
        )
        done = updated == wanted == total == available
        name = f"{record.name}-{digest}"
        _set_timed(
            status,
            "Progressing",
            True,
            "NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
            f'ReplicaSet "{name}" {"has successfully progressed" if done else "is progressing"}.',
            self.api.now(),
        )
        self.put_status(type_, record.key, status)


def _set_timed(status: Json, type_: str, holds: bool, reason: str, message: str, now: str) -> None:
    """Set a Deployment condition with lastUpdateTime, which changes whenever the condition's text changes."""
    before: Json = next((item for item in status["conditions"] if item.get("type") == type_), {})
    condition = {
        "type": type_,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
    }
    same = all(before.get(key) == value for key, value in condition.items())
    set_condition(status, {**condition, "lastUpdateTime": before["lastUpdateTime"] if same else now}, now)


def _serving(record: Record) -> int:
    """Return how many replicas of a ReplicaSet are available and still wanted: the status can be outdated after a
    scale-down."""
    return min(_size(record), _status(record, "availableReplicas"))


def _size(record: Record) -> int:
    return number(dig(record.load(), "spec", "replicas"), 1)


def _status(record: Record, field: str) -> int:
    return number(dig(record.load(), "status", field), 0)


def _share(value: Any, total: int, *, up: bool) -> int:
    if isinstance(value, str) and value.endswith("%"):
        try:
            exact = int(value[:-1]) * total / 100
        except ValueError:
            return 0
        return math.ceil(exact) if up else math.floor(exact)
    return number(value, 0)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return value
