"""Known pods, and the warnings about their labels, annotations and gang declarations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from phalanx.dialects.gangs.agreement import MemberDeclaration
from phalanx.dialects.gangs.extras import Stated
from phalanx.dialects.lenient import DecodingFault, summary
from phalanx.dialects.warnings import ObjectWarning, ObjectWarnings, pod_ref
from phalanx.model.pod import Pod
from phalanx.model.text.decoding import quoted


class KnownPod(msgspec.Struct, gc=False):
    """Known pod. `pod` is its spec from its own object; `published` is the last enriched spec sent to the
    scheduler, with properties that other objects decide, such as the use of lent nodes. `faults` are its ignored
    fields, `concerned` the set of enrichers that it concerns."""

    pod: Pod
    declared: MemberDeclaration | None
    owners: str
    published: Pod | None = None
    faults: tuple[DecodingFault, ...] = ()
    concerned: int = 0


class KnownPods(dict[str, KnownPod]):
    """Known pods by uid, and by namespace and name; a mapping that only `enter` and `drop` modify."""

    def __init__(self) -> None:
        super().__init__()
        self._namespaces: dict[str, dict[str, KnownPod]] = {}

    def of_namespace(self, namespace: str) -> Collection[KnownPod]:
        return self._namespaces.get(namespace, _NOBODY).values()

    def uid(self, namespace: str, name: str) -> str:
        """Return the uid of the known pod with this namespace and name; "" for none."""
        known = self._namespaces.get(namespace, _NOBODY).get(name)
        return known.pod.uid if known is not None else ""

    def enter(self, known: KnownPod) -> None:
        pod = known.pod
        self[pod.uid] = known
        pods = self._namespaces.get(pod.namespace)
        if pods is None:
            pods = self._namespaces[pod.namespace] = {}
        pods[pod.name] = known

    def drop(self, uid: str) -> KnownPod | None:
        known = self.pop(uid, None)
        if known is not None:
            pods = self._namespaces[known.pod.namespace]
            if pods.get(known.pod.name) is known:
                del pods[known.pod.name]
                if not pods:
                    del self._namespaces[known.pod.namespace]
        return known


_NOBODY: dict[str, KnownPod] = {}


class PodWarnings:
    """Warnings about pods: each is recorded once, and only while it is true of the known pod."""

    def __init__(self, warnings: ObjectWarnings, pods: Mapping[str, KnownPod]) -> None:
        self._object_warnings = warnings
        self._pods = pods

    def changed(
        self, pod: Pod, declared: MemberDeclaration | None, problem: str, conflicts: tuple[Stated, ...]
    ) -> None:
        """Warn about a problem or conflicts in the pod's gang declaration that differ from the previous ones."""
        if pod.problem and pod.problem != problem:
            self.warn(pod, "InvalidPod", pod.problem, lambda now: now.pod.problem == pod.problem)
        if declared is not None and declared.declaration.conflicts and declared.declaration.conflicts != conflicts:
            declaration = declared.declaration
            names = ", ".join(f"{stated.key} {quoted(stated.value)}" for stated in declaration.conflicts)
            self.warn(
                pod,
                "ConflictingGangDeclaration",
                f"{declaration.key} is {quoted(declaration.name)}, which holds, but the pod also states {names}; "
                "remove all but one",
                lambda now: (
                    now.declared is not None and now.declared.declaration.conflicts == declaration.conflicts
                ),
            )

    def passed_over(self, uid: str, faults: tuple[DecodingFault, ...]) -> None:
        """Warn about labels and annotations of a pod that have become unusable and are ignored."""
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
        """Warn about an empty group name, since the user probably intended to name a group."""
        if text and not (pod.finished or pod.node):
            self.warn(pod, "InvalidPodGroup", text, lambda now: not now.pod.node)

    def warn(self, pod: Pod, reason: str, message: str, still_true: Callable[[KnownPod], bool]) -> None:
        def holds() -> bool:
            record = self._pods.get(pod.uid)
            return record is not None and still_true(record)

        self._object_warnings.add(
            ObjectWarning(pod_ref(pod.namespace, pod.name, pod.uid), "Warning", reason, message), holds
        )
