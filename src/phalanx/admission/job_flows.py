"""JobFlow (flow.volcano.sh): jobs that wait for each other must be able to begin."""

from __future__ import annotations

from phalanx.admission.context import AdmissionContext
from phalanx.admission.fields import Json, PatchBuilder, mapping, sequence, text
from phalanx.jobs.task_graph import is_acyclic

_NO_DAG = "jobflow Flow is not DAG"


def defaults(document: Json, context: AdmissionContext) -> PatchBuilder:
    """Nothing: the definition of the kind says what is filled in."""
    return PatchBuilder(document)


def validate(document: Json, old: Json | None, context: AdmissionContext) -> list[str]:
    """Why a flow cannot be created, or (with `old`) changed so. Of steps of one name the last counts."""
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
