"""Admission rules for JobFlow (flow.volcano.sh): the dependencies of its jobs must have no cycle."""

from __future__ import annotations

from phalanx.admission.context import AdmissionContext
from phalanx.admission.fields import Json, PatchBuilder, mapping, sequence, text
from phalanx.jobs.task_graph import is_acyclic

_NO_DAG = "jobflow Flow is not DAG"


def defaults(document: Json, context: AdmissionContext) -> PatchBuilder:
    """Return no defaults for a JobFlow: the CRD of the kind has them."""
    return PatchBuilder(document)


def validate(document: Json, old: Json | None, context: AdmissionContext) -> list[str]:
    """Return the reasons to deny the creation of a JobFlow, or (with `old`) its change.

    Of several steps with one name the last one counts.
    """
    spec = mapping(document.get("spec"))
    if old is not None and spec == old.get("spec"):
        return []
    waits_for: dict[str, list[str]] = {}
    for step in sequence(spec.get("flows")):
        targets = sequence(mapping(mapping(step).get("dependsOn")).get("targets"))
        waits_for[text(mapping(step).get("name"))] = [text(target) for target in targets]
    for targets in waits_for.values():
        for target in targets:
            if target not in waits_for:
                return [f"{_NO_DAG}: vertex is not defined: {target}"]
    return [] if is_acyclic(waits_for) else [_NO_DAG]
