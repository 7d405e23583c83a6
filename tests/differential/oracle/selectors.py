"""Label selectors and node selectors.

Sources: staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/helpers.go (LabelSelectorAsSelector),
staging/src/k8s.io/apimachinery/pkg/labels/selector.go,
staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Wire = Mapping[str, Any]
Labels = Mapping[str, str]

_INTEGER = re.compile(r"^[+-]?[0-9]+$")
# Pattern of a label value.
_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")


class UnreadableSelectorError(Exception):
    """Error of text that is no selector."""


def label_selector_matches(selector: Wire | None, labels: Labels) -> bool:
    """A selector that is absent matches nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(_expression_holds(entry, labels) for entry in selector.get("matchExpressions") or ())


def _expression_holds(entry: Wire, labels: Labels) -> bool:
    key, operator, values = entry.get("key", ""), entry.get("operator", ""), entry.get("values") or []
    if any(len(value) > 63 or not _VALUE.match(value) for value in values):
        raise UnreadableSelectorError(f"{values}: no values of labels")
    if operator in ("In", "NotIn") and not values:
        raise UnreadableSelectorError(f"{operator} without values")
    if operator in ("Exists", "DoesNotExist") and values:
        raise UnreadableSelectorError(f"{operator} with values")
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    raise UnreadableSelectorError(f"operator {operator!r}")


def node_selector_matches(selector: Wire, node: Wire) -> bool:
    """Return whether one of the terms matches; an empty or unreadable term does not."""
    return any(node_term_matches(term, node) for term in selector.get("nodeSelectorTerms") or ())


def node_term_matches(term: Wire, node: Wire) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    labels: Labels = node["metadata"].get("labels") or {}
    answers = [_node_expression_holds(entry, labels) for entry in expressions]
    answers += [_field_holds(entry, node["metadata"]["name"]) for entry in fields]
    return all(answer is True for answer in answers)


def _node_expression_holds(entry: Wire, labels: Labels) -> bool | None:
    """None where the expression cannot be read: then the whole term is false."""
    operator, values = entry.get("operator", ""), entry.get("values") or []
    if operator in ("Gt", "Lt"):
        if len(values) != 1 or (bound := _integer(values[0])) is None:
            return None
        own = _integer(labels.get(entry.get("key", ""), ""))
        return own is not None and (own > bound if operator == "Gt" else own < bound)
    try:
        return _expression_holds(entry, labels)
    except UnreadableSelectorError:
        return None


def _field_holds(entry: Wire, name: str) -> bool | None:
    values = entry.get("values") or []
    if entry.get("key") != "metadata.name" or len(values) != 1:
        return None
    match entry.get("operator"):
        case "In":
            return bool(name == values[0])
        case "NotIn":
            return bool(name != values[0])
    return None


def _integer(text: str) -> int | None:
    """Parse a signed 64-bit number."""
    if not _INTEGER.match(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
