"""Match of labels with node selector terms of core/v1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phalanx.model.selectors import NodeSelectorTerm, Requirement, parse_int64

Labels = Mapping[str, str]
# Terms joined by OR; None for no requirement.
Terms = tuple[NodeSelectorTerm, ...] | None


def reaches(terms: Terms, labels: Labels) -> bool:
    """Return whether a node with these labels matches one of the terms (None: no restriction)."""
    return terms is None or any(term_holds(term, labels) for term in terms)


def term_holds(term: NodeSelectorTerm, labels: Labels) -> bool:
    """Return whether labels match a node selector term. A term with fields is about node names and never
    matches."""
    if term.invalid or term.fields or not term.expressions:
        return False
    return all_hold(term.expressions, labels)


def all_hold(requirements: Iterable[Requirement], labels: Labels) -> bool:
    return all(_holds(requirement, labels.get(requirement.key)) for requirement in requirements)


def _holds(requirement: Requirement, value: str | None) -> bool:
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            bound = parse_int64(requirement.values[0]) if len(requirement.values) == 1 else None
            actual = parse_int64(value) if value is not None else None
            if bound is None or actual is None:
                return False
            return actual > bound if requirement.operator == "Gt" else actual < bound
    return False
