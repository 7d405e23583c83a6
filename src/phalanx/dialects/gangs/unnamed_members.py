"""Pods that belong to a group of Kubernetes' own and do not name it: the API server may have dropped the name.

A server that does not serve the native gang API drops the field of pods without a word; their gang is lost.
"""

from __future__ import annotations

from phalanx.dialects.api_groups import NATIVE
from phalanx.dialects.core import Metadata
from phalanx.dialects.warnings import ObjectWarning, ObjectWarnings, pod_ref
from phalanx.model.pod import Pod


class UnnamedMembers:
    """Tells each such pod once, while the API is not served."""

    def __init__(self, warnings: ObjectWarnings) -> None:
        self._object_warnings = warnings
        self._served = True
        self._pods: dict[str, tuple[Pod, str]] = {}

    def pod_changed(self, pod: Pod, metadata: Metadata | None) -> None:
        """`metadata` is that of a pod that is ours to place and names no group, None of any other."""
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
        """Whether the API server has Kubernetes' own PodGroups (until we are told, it has)."""
        last, self._served = self._served, served
        if last and not served:
            for _, (pod, claim) in sorted(self._pods.items()):
                self._warn(pod, claim)

    def _warn(self, pod: Pod, claim: str) -> None:
        def holds() -> bool:
            found = self._pods.get(pod.uid)
            return found is not None and found[1] == claim and not self._served

        message = f"{claim}, but the pod names no group, and {NOT_SERVED}"
        about = pod_ref(pod.namespace, pod.name, pod.uid)
        self._object_warnings.add(ObjectWarning(about, "Warning", "NativeGroupsNotServed", message), holds)


NOT_SERVED = (
    f"this API server serves no PodGroup of {NATIVE}, so that pods cannot name groups of Kubernetes' own (it drops "
    "the field without a word); switch the API on, or use the annotations phalanx.dev/pod-group and "
    "phalanx.dev/min-count"
)
# What a controller leaves on pods that it means to put into a native group.
_TEMPLATE = "scheduling.k8s.io/group-template-name"


def _claim(metadata: Metadata) -> str:
    """By what a pod belongs to a native group, in words; "" if by nothing."""
    for owner in metadata.owner_references:
        if owner.api_version.partition("/")[0] == NATIVE:
            return f"its owner is the {owner.kind} {owner.name} of {NATIVE}"
    template = metadata.annotations.get(_TEMPLATE)
    return f"its annotation {_TEMPLATE} is {template!r}" if template else ""
