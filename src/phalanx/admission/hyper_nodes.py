"""Admission rules for HyperNode (topology.volcano.sh): valid member selectors."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.admission.context import AdmissionContext
from phalanx.admission.fields import Json, PatchBuilder, mapping, sequence, text
from phalanx.admission.names import subdomain_faults
from phalanx.model.text.patterns import Pattern, PatternError

_SELECTORS = ("exactMatch", "regexMatch", "labelMatch")
_PATH = "spec.members"


def defaults(document: Json, context: AdmissionContext) -> PatchBuilder:
    """Return no defaults for a HyperNode."""
    return PatchBuilder(document)


def validate(document: Json, old: Json | None, context: AdmissionContext) -> list[str]:
    """Return the reasons to deny the creation of a HyperNode, or (with `old`) its change."""
    spec = mapping(document.get("spec"))
    if old is not None and spec == old.get("spec"):
        return []
    members = sequence(spec.get("members"))
    faults: list[str] = []
    if not members:
        faults.append(f"{_PATH}: Invalid value: null: member must have at least one member")
    for index, member in enumerate(members):
        faults += _selector(mapping(mapping(member).get("selector")), f"{_PATH}[{index}].selector")
    if not faults:
        return []
    return [f"[{', '.join(faults)}]" if len(faults) > 1 else faults[0]]


def _selector(selector: Json, path: str) -> Iterator[str]:
    stated = [name for name in _SELECTORS if selector.get(name) is not None]
    if len(stated) != 1:
        names = " and ".join(stated) or "none"
        yield f"{path}: Invalid value: exactly one of {', '.join(_SELECTORS)} must be set, found {names}"
        return
    if stated[0] == "exactMatch":
        name = text(mapping(selector["exactMatch"]).get("name"))
        if not name:
            yield f'{path}.exactMatch.name: Invalid value: "": should be at least 1 chars long'
            return
        for fault in subdomain_faults(name):
            yield f'{path}.exactMatch.name: Invalid value: "{name}": {fault}'
    elif stated[0] == "regexMatch":
        pattern = text(mapping(selector["regexMatch"]).get("pattern"))
        if not pattern:
            yield f'{path}.regexMatch.pattern: Invalid value: "": should be at least 1 chars long'
            return
        try:
            Pattern(pattern)
        except PatternError as error:
            reason = f"member regexMatch pattern is invalid: {error}"
            yield f'{path}.regexMatch.pattern: Invalid value: "{pattern}": {reason}'
