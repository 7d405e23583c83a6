"""Reasons why pods with a node do not run: containers that wait, and volumes that do not exist yet."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from phalanx.model.pod import Pod
from phalanx.model.text.decoding import decode_json
from phalanx.model.verdict import WAITING_FOR_VOLUMES

Json = Mapping[str, Any]

# Reasons of containers that are about to start.
_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
_IMAGE = "correct the image, or the imagePullSecrets of the pod"
_ADVICE = MappingProxyType(
    {
        "ImagePullBackOff": _IMAGE,
        "ErrImagePull": _IMAGE,
        "InvalidImageName": _IMAGE,
        "ErrImageNeverPull": _IMAGE,
        "CreateContainerConfigError": "create the ConfigMap or Secret that the message names",
    }
)


class PodTrouble(msgspec.Struct, frozen=True):
    """Reason why a pod does not run. `container` is "" where the volumes of the pod are the reason."""

    reason: str
    message: str
    container: str = ""

    def advice(self, pod: Pod) -> str:
        """Return the change or the command that helps."""
        if self.reason == WAITING_FOR_VOLUMES:
            return "check that the named provisioner runs; look at the events of the claim"
        if self.reason == "CrashLoopBackOff":
            return (
                f"read its last output: kubectl logs -n {pod.namespace} {pod.name} -c {self.container} --previous"
            )
        return _ADVICE.get(self.reason, f"look at its events: kubectl describe pod -n {pod.namespace} {pod.name}")

    @property
    def sentence(self) -> str:
        subject = f"container {self.container}: {self.reason}" if self.container else self.reason
        return f"{subject}: {self.message}" if self.message else subject


def container_trouble(status: Json) -> PodTrouble | None:
    """Return the reason of the first container that waits for another cause than its start."""
    for field in ("initContainerStatuses", "containerStatuses"):
        listed = status.get(field)
        for entry in listed if isinstance(listed, list) else ():
            state = entry.get("state") if isinstance(entry, Mapping) else None
            waiting = state.get("waiting") if isinstance(state, Mapping) else None
            if isinstance(waiting, Mapping) and str(waiting.get("reason") or "") not in _STARTING:
                return PodTrouble(
                    str(waiting["reason"]), str(waiting.get("message") or ""), str(entry.get("name") or "")
                )
    return None


def pod_trouble(raw: bytes) -> tuple[str, PodTrouble] | None:
    """Return uid and reason of a pod that does not run; None for other pods."""
    # Most pods have neither word.
    if b'"waiting"' not in raw and WAITING_FOR_VOLUMES.encode() not in raw:
        return None
    document = decode_json(raw)
    status = document.get("status") or {}
    uid = str(document["metadata"].get("uid") or "")
    if (document.get("spec") or {}).get("nodeName"):
        trouble = container_trouble(status)
        return (uid, trouble) if trouble is not None else None
    for condition in status.get("conditions") or ():
        named = tuple(condition.get(field) for field in ("type", "status", "reason"))
        if named == ("PodScheduled", "False", WAITING_FOR_VOLUMES):
            return uid, PodTrouble(WAITING_FOR_VOLUMES, str(condition.get("message") or ""))
    return None
