"""The pods that are known, and what their users are told about what they state."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from phalanx.dialects.gangs.agreement import MemberDeclaration
from phalanx.dialects.gangs.extras import Stated
from phalanx.dialects.lenient import DecodingFault, summary
from phalanx.dialects.warnings import ObjectWarning, ObjectWarnings, pod_ref
from phalanx.model.pod import Pod


class KnownPod(msgspec.Struct, gc=False):
    """`pod` is what the object says, `told` what the scheduler was told: with what others decide about it, such as
    its gang's word on lent nodes. `faults` are what is passed over in it.
    """

    pod: Pod
    declared: MemberDeclaration | None
    owners: str
    told: Pod | None = None
    faults: tuple[DecodingFault, ...] = ()


class PodWarnings:
    """Each is told once, and only while it still holds of what is known of the pod."""

    def __init__(self, warnings: ObjectWarnings, pods: Mapping[str, KnownPod]) -> None:
        self._object_warnings = warnings
        self._pods = pods

    def changed(
        self, pod: Pod, declared: MemberDeclaration | None, problem: str, conflicts: tuple[Stated, ...]
    ) -> None:
        """What is new beside the problem and the conflicts that it had before."""
        if pod.problem and pod.problem != problem:
            self.warn(pod, "InvalidPod", pod.problem, lambda now: now.pod.problem == pod.problem)
        if declared is not None and declared.declaration.conflicts and declared.declaration.conflicts != conflicts:
            declaration = declared.declaration
            others = ", ".join(f"{stated.key} {stated.value!r}" for stated in declaration.conflicts)
            self.warn(
                pod,
                "ConflictingGangDeclaration",
                f"{declaration.key} is {declaration.name!r}, which holds, but the pod also states {others}; "
                "remove all but one",
                lambda now: (
                    now.declared is not None and now.declared.declaration.conflicts == declaration.conflicts
                ),
            )

    def passed_over(self, uid: str, faults: tuple[DecodingFault, ...]) -> None:
        """What does not count of a pod's labels and annotations now."""
        record = self._pods[uid]
        if faults == record.faults:
            return
        fresh = tuple(fault for fault in faults if fault not in record.faults)
        record.faults = faults
        if fresh:
            self.warn(
                record.pod, "InvalidAnnotation", summary(fresh), lambda now: not set(fresh).difference(now.faults)
            )

    def nameless(self, pod: Pod, text: str) -> None:
        """Whoever leaves a group's name empty may have meant one (seed 000)."""
        if text and not (pod.finished or pod.node):
            self.warn(pod, "InvalidPodGroup", text, lambda now: not now.pod.node)

    def warn(self, pod: Pod, reason: str, message: str, still_true: Callable[[KnownPod], bool]) -> None:
        def holds() -> bool:
            record = self._pods.get(pod.uid)
            return record is not None and still_true(record)

        self._object_warnings.add(
            ObjectWarning(pod_ref(pod.namespace, pod.name, pod.uid), "Warning", reason, message), holds
        )
