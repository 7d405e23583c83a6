"""Events that only confirm a binding of ours: the pod is not decoded again."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import msgspec
from msgspec.structs import replace

from phalanx.dialects.core import PodObject
from phalanx.dialects.devices.shared_cards import CARD_ANNOTATIONS
from phalanx.dialects.gangs.held_room import HELD_ROOM
from phalanx.dialects.gangs.plan_marks import PLAN_ANNOTATION
from phalanx.dialects.pods.decoder import PodDecoder
from phalanx.dialects.pods.known_pods import KnownPod, Unbound
from phalanx.model.pod import Pod

# Annotations that are read together with the node of a pod.
_OF_A_NODE = CARD_ANNOTATIONS | {HELD_ROOM}


class ConfirmedBindings:
    """Recognition of members of gangs that differ from their last event in nothing but the result of our binding:
    node, signed plan mark, condition PodScheduled and nominated node.

    Specs are compared by the identity of the part that `PodReader` shares among identically written specs.
    """

    def __init__(self, decoder: PodDecoder, scheduler_names: AbstractSet[str]) -> None:
        self._decoder = decoder
        self._scheduler_names = scheduler_names
        self._encoder = msgspec.json.Encoder()

    def note(self, known: KnownPod, pod: PodObject) -> None:
        """Record an event of a pod, if the next one can confirm its binding."""
        spec = known.pod
        awaited = (
            pod.spec_template
            and not spec.node
            and not spec.gated
            and known.declared is not None
            and spec.scheduler in self._scheduler_names
            and _OF_A_NODE.isdisjoint(pod.metadata.annotations)
        )
        known.unbound = Unbound(self._digest(pod), pod.spec_template, pod.template) if awaited else None

    def confirmed(self, known: KnownPod, pod: PodObject) -> Pod | None:
        """Return the spec of a pod after our binding; None if anything else has changed."""
        last, metadata = known.unbound, pod.metadata
        if (
            last is None
            or pod.spec_template is not last.spec_template
            or not pod.spec.node_name
            or PLAN_ANNOTATION not in metadata.annotations
            or not _OF_A_NODE.isdisjoint(metadata.annotations)
            or self._digest(pod) != last.digest
        ):
            return None
        mark = self._decoder.mark(metadata, known.pod.gang)
        if mark is None:
            return None
        known.unbound, pod.template = None, last.template
        return replace(
            known.pod,
            node=pod.spec.node_name,
            nominated_node=pod.status.nominated_node_name,
            bound=self._decoder.bound(pod),
            mark=mark,
        )

    def _digest(self, pod: PodObject) -> int:
        """Return a digest of everything outside the spec that a binding does not change."""
        metadata, status = pod.metadata, pod.status
        annotations = metadata.annotations
        if PLAN_ANNOTATION in annotations:
            annotations = {key: value for key, value in annotations.items() if key != PLAN_ANNOTATION}
        return hash(
            self._encoder.encode(
                (
                    metadata.labels,
                    annotations,
                    metadata.owner_references,
                    metadata.creation_timestamp,
                    metadata.deletion_timestamp,
                    metadata.deletion_grace_period_seconds,
                    status.phase,
                    status.reason,
                    status.start_time,
                    [condition for condition in status.conditions if condition.type != "PodScheduled"],
                    status.container_statuses,
                    status.init_container_statuses,
                    status.resources,
                    status.allocated_resources,
                    status.resource_claim_statuses,
                )
            )
        )
