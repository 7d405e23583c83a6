"""Label and field selectors of requests and objects."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from phalanx.model.label_selectors import parse_label_selector
from phalanx.model.selectors import Requirement
from phalanx_local.errors import StatusError, bad_request
from phalanx_local.objects import mapping, sequence, text

# The labels must satisfy all requirements; see `phalanx.model.matching`.
Requirements = tuple[Requirement, ...]


def requested_labels(source: str) -> Requirements:
    """Parse a `labelSelector` query parameter. Raise a 400 StatusError that quotes the text."""
    try:
        return parse_label_selector(source)
    except ValueError as problem:
        raise bad_request(f"unable to parse requirement: {problem}") from None


def selector_from_object(selector: Any) -> Requirements | None:
    """Parse a metav1.LabelSelector of an object. None selects nothing; an empty selector selects everything."""
    if not isinstance(selector, dict):
        return None
    requirements = [
        Requirement(key, "In", (text(value),)) for key, value in mapping(selector.get("matchLabels")).items()
    ]
    for expression in sequence(selector.get("matchExpressions")):
        values = tuple(text(value) for value in sequence(mapping(expression).get("values")))
        requirements.append(Requirement(text(expression.get("key")), text(expression.get("operator")), values))
    return tuple(requirements)


class FieldTerm(NamedTuple):
    field: str
    equal: bool
    value: str


class FieldSelector(NamedTuple):
    """Field selector of a request: all of its `field=value` and `field!=value` terms must match."""

    terms: tuple[FieldTerm, ...]

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(field, "") == value) is equal for field, equal, value in self.terms)

    def exact(self, field: str) -> str | None:
        """Return the value that the field selector requires for the field; None if it requires no single value."""
        for term in self.terms:
            if term.equal and term.field == field and term.value:
                return term.value
        return None


def parse_field_selector(source: str, known: Collection[str]) -> FieldSelector:
    """Parse a field selector `a.b=x,c!=y`; backslash escapes `,`, `=` and itself. Raise a 400 StatusError for a
    field outside `known`."""
    terms = []
    for part in re.split(r"(?<!\\),", source):
        if not part:
            continue
        match = re.match(r"^((?:\\.|[^=!\\])*)(==|=|!=)(.*)$", part)
        if match is None:
            raise _bad_field(f"invalid selector: '{part}'; can't understand '{part}'")
        field, operator, value = match.groups()
        if field not in known:
            raise _bad_field(f"field label not supported: {field}")
        terms.append(FieldTerm(field, operator != "!=", re.sub(r"\\(.)", r"\1", value)))
    return FieldSelector(tuple(terms))


def _bad_field(message: str) -> StatusError:
    return bad_request(message)
