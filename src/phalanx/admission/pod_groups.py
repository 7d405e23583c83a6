"""Admission rules for PodGroup (scheduling.volcano.sh): the default queue of its namespace, and refusals."""

from __future__ import annotations

from phalanx.admission.context import DEFAULT, AdmissionContext
from phalanx.admission.fields import Json, PatchBuilder, annotations_of, mapping, sequence, text
from phalanx.admission.queue_state import refusals_of_queue
from phalanx.dialects.gangs.declaration import QUEUE_ANNOTATION

_MANY_TIERS = "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously."


def defaults(document: Json, context: AdmissionContext) -> PatchBuilder:
    """Return the queue of the namespace as default for a PodGroup without a queue or in queue `default`."""
    built = PatchBuilder(document)
    queue = text(annotations_of(context.namespace).get(QUEUE_ANNOTATION))
    stated = mapping(document.get("spec")).get("queue")
    if queue and queue != stated and stated in (DEFAULT, "", None):
        built.add(("spec", "queue"), queue)
    return built


def validate(document: Json, old: Json | None, context: AdmissionContext) -> list[str]:
    """Return the reasons to deny a PodGroup's creation, or (with `old`) its change; an unchanged queue is
    allowed."""
    spec, before = mapping(document.get("spec")), mapping((old or {}).get("spec"))
    refusals: list[str] = []
    queue = text(spec.get("queue"))
    if queue and context.queues is not None and (old is None or queue != before.get("queue")):
        refusals += [refusal.removesuffix(";") for refusal in refusals_of_queue(context.queues, queue, "PodGroup")]
    if spec != before:
        if _many_tiers(spec.get("networkTopology")):
            refusals.append(_MANY_TIERS)
        for item in sequence(spec.get("subGroupPolicy")):
            if _many_tiers(mapping(item).get("networkTopology")):
                refusals.append(f"in subGroupPolicy '{text(mapping(item).get('name'))}': {_MANY_TIERS}")
                break
    return ["; ".join(refusals)] if refusals else []


def _many_tiers(value: object) -> bool:
    topology = mapping(value)
    return topology.get("highestTierAllowed") is not None and bool(topology.get("highestTierName"))
