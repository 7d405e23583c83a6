"""Decoding of metav1.LabelSelector into requirements."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.dialects.core import LabelSelector
from phalanx.dialects.lenient import decode_leniently
from phalanx.model.peers import Selector, selects
from phalanx.model.selectors import Requirement
from phalanx.model.text.decoding import quoted

Labels = Mapping[str, str]

__all__ = ["IllegibleSelectorError", "Labels", "Selector", "read_selector", "requirements_of", "selects"]

_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")


class IllegibleSelectorError(Exception):
    """Label selector that the API server would have rejected."""


def requirements_of(selector: LabelSelector) -> Selector:
    """Return the requirements of a label selector, all of which must match; none match everything. Raise
    IllegibleSelectorError."""
    requirements = [Requirement(key, "In", (value,)) for key, value in sorted(selector.match_labels.items())]
    for entry in selector.match_expressions:
        if entry.operator not in (*_WITH_VALUES, *_WITHOUT_VALUES):
            raise IllegibleSelectorError(f"{entry.key}: unknown operator {quoted(entry.operator)}")
        if bool(entry.values) != (entry.operator in _WITH_VALUES):
            wanted = "needs values" if entry.operator in _WITH_VALUES else "takes no values"
            raise IllegibleSelectorError(f"{entry.key}: {entry.operator} {wanted}")
        requirements.append(Requirement(entry.key, entry.operator, tuple(entry.values)))
    return tuple(requirements)


def read_selector(stated: object) -> Selector:
    """Parse a label selector of a custom object. Raise IllegibleSelectorError."""
    wire, faults = decode_leniently(_Wrapped, {"metadata": {"name": "-"}, "selector": stated})
    if faults:
        raise IllegibleSelectorError("; ".join(map(str, faults)))
    return requirements_of(wire.selector)


class _Wrapped(msgspec.Struct):
    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
