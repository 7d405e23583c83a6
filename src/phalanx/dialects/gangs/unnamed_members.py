"""Pods of a native PodGroup that do not name it: the API server can have dropped the name.

A server without the native gang API drops the pods' field silently, and with it their gang.
"""

from __future__ import annotations

from phalanx.dialects.api_groups import NATIVE, NATIVE_VERSIONS
from phalanx.dialects.core import Metadata
from phalanx.dialects.warnings import ObjectWarning, ObjectWarnings, pod_ref
from phalanx.model.pod import Pod
from phalanx.model.text.decoding import quoted


class UnnamedMembers:
    """Warns once about each pod of a native PodGroup that does not name it, while the API server serves no native
    PodGroups."""

    def __init__(self, warnings: ObjectWarnings) -> None:
        self._object_warnings = warnings
        self._served = True
        self._pods: dict[str, tuple[Pod, str]] = {}

    def pod_changed(self, pod: Pod, metadata: Metadata | None) -> None:
        """Process an added or changed pod. `metadata` is that of a pending pod of ours without a gang name, None
        for any other pod."""
        claim = _claim(metadata) if metadata is not None else ""
        if not claim:
            self.pod_removed(pod.uid)
            return
        last = self._pods.get(pod.uid)
        self._pods[pod.uid] = (pod, claim)
        if not self._served and (last is None or last[1] != claim):
            self._warn(pod, claim)

    def pod_removed(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def native_served(self, served: bool) -> None:
        """Record whether the API server serves native PodGroups (assumed until known)."""
        last, self._served = self._served, served
        if last and not served:
            for _, (pod, claim) in sorted(self._pods.items()):
                self._warn(pod, claim)

    def _warn(self, pod: Pod, claim: str) -> None:
        def holds() -> bool:
            record = self._pods.get(pod.uid)
            return record is not None and record[1] == claim and not self._served

        message = f"{claim}, but the pod names no group, and {NOT_SERVED}"
        about = pod_ref(pod.namespace, pod.name, pod.uid)
        self._object_warnings.add(ObjectWarning(about, "Warning", "NativeGroupsNotServed", message), holds)


NOT_SERVED = (
    f"this API server serves no PodGroup of {NATIVE} ({', '.join(NATIVE_VERSIONS)}), so that pods cannot name "
    "groups of Kubernetes' own (it drops the field silently); switch the API on, or use the annotations "
    "phalanx.dev/pod-group and phalanx.dev/min-count"
)
# Annotation that a controller writes on pods of a native group.
_TEMPLATE = "scheduling.k8s.io/group-template-name"


def _claim(metadata: Metadata) -> str:
    """Return the sign that a pod belongs to a native PodGroup, as text: its template annotation or its owner; ""
    without a sign."""
    for owner in metadata.owner_references:
        if owner.api_version.partition("/")[0] == NATIVE:
            return f"its owner is the {owner.kind} {owner.name} of {NATIVE}"
    template = metadata.annotations.get(_TEMPLATE)
    return f"its annotation {_TEMPLATE} is {quoted(template)}" if template else ""
