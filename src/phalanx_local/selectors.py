"""Label and field selectors: the query-string syntax and the object form, compiled to predicates.

Grammar of the label form: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from phalanx_local.errors import ApiError, bad_request
from phalanx_local.objects import mapping, sequence, text

LabelTest = Callable[[Mapping[str, str]], bool]

_TOKEN = re.compile(r"\s*(==|!=|=|!|,|\(|\)|<|>|[^\s,()=!<>]+)")
_KEY = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")


class Requirement(NamedTuple):
    """One label requirement; `values` is empty for Exists and DoesNotExist."""

    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "In":
            return value is not None and value in self.values
        if self.operator == "NotIn":
            return value is None or value not in self.values
        if self.operator == "Exists":
            return value is not None
        if self.operator == "DoesNotExist":
            return value is None
        return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        try:
            left, right = int(value or ""), int(next(iter(self.values)))
        except ValueError:
            return False
        return left > right if self.operator == "Gt" else left < right


class LabelSelector(NamedTuple):
    """A conjunction of requirements; without any it matches everything."""

    requirements: tuple[Requirement, ...]

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse_label_selector(source: str) -> LabelSelector:
    """`a=b,c!=d,e in (x,y),f notin (z),g,!h`. Raises a 400 ApiError that quotes the text."""
    try:
        return LabelSelector(tuple(_parse(source)))
    except ValueError as problem:
        text_ = f"unable to parse requirement: {problem}"
        raise bad_request(text_) from None


def _parse(source: str) -> list[Requirement]:
    tokens = _tokens(source)
    found: list[Requirement] = []
    at = 0
    while at < len(tokens):
        requirement, at = _requirement(tokens, at)
        found.append(requirement)
        if at < len(tokens):
            if tokens[at] != ",":
                raise ValueError(f"found '{tokens[at]}', expected: ',' or 'end of string'")
            at += 1
            if at == len(tokens):
                raise ValueError("found '', expected: identifier after ','")
    return found


def _tokens(source: str) -> list[str]:
    tokens, at = [], 0
    stripped = source.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None:
            raise ValueError(f"unexpected character in {source!r}")
        tokens.append(match.group(1))
        at = match.end()
    return tokens


def _requirement(tokens: list[str], at: int) -> tuple[Requirement, int]:
    if tokens[at] == "!":
        key = _key(tokens, at + 1)
        return Requirement(key, "DoesNotExist", frozenset()), at + 2
    key = _key(tokens, at)
    at += 1
    operator = tokens[at] if at < len(tokens) else ","
    if operator == ",":
        return Requirement(key, "Exists", frozenset()), at
    if operator in ("=", "==", "!=", "<", ">"):
        value = ""
        if at + 1 < len(tokens) and tokens[at + 1] not in (",", ")"):
            value = _value(tokens[at + 1])
            at += 1
        name = {"!=": "NotIn", "<": "Lt", ">": "Gt"}.get(operator, "In")
        return Requirement(key, name, frozenset((value,))), at + 1
    if operator in ("in", "notin"):
        values, at = _values(tokens, at + 1)
        return Requirement(key, "In" if operator == "in" else "NotIn", values), at
    raise ValueError(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")


def _key(tokens: list[str], at: int) -> str:
    key = tokens[at] if at < len(tokens) else ""
    if not _KEY.match(key):
        raise ValueError(f"found '{key}', expected: a label key")
    return key


def _value(value: str) -> str:
    if len(value) > 63 or not _VALUE.match(value):
        raise ValueError(f"invalid label value {value!r}")
    return value


def _values(tokens: list[str], at: int) -> tuple[frozenset[str], int]:
    if at >= len(tokens) or tokens[at] != "(":
        raise ValueError("expected: '('")
    values: list[str] = []
    expect_value = True
    for index in range(at + 1, len(tokens)):
        token = tokens[index]
        if token == ")":
            if expect_value:
                values.append("")
            return frozenset(values), index + 1
        if token == ",":
            if expect_value:
                values.append("")
            expect_value = True
        else:
            values.append(_value(token))
            expect_value = False
    raise ValueError("expected: ')'")


def selector_from_object(selector: Any) -> LabelSelector | None:
    """A metav1.LabelSelector. None selects nothing; an empty object selects everything."""
    if not isinstance(selector, dict):
        return None
    found = [
        Requirement(key, "In", frozenset((text(value),)))
        for key, value in mapping(selector.get("matchLabels")).items()
    ]
    for expression in sequence(selector.get("matchExpressions")):
        values = frozenset(text(value) for value in sequence(mapping(expression).get("values")))
        found.append(Requirement(text(expression.get("key")), text(expression.get("operator")), values))
    return LabelSelector(tuple(found))


class FieldTerm(NamedTuple):
    field: str
    equal: bool
    value: str


class FieldSelector(NamedTuple):
    """A conjunction of `field=value` and `field!=value`."""

    terms: tuple[FieldTerm, ...]

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(field, "") == value) is equal for field, equal, value in self.terms)

    def exact(self, field: str) -> str | None:
        """The value that the field must have, when the selector fixes it."""
        for term in self.terms:
            if term.equal and term.field == field and term.value:
                return term.value
        return None


def parse_field_selector(source: str, known: Collection[str]) -> FieldSelector:
    """`a.b=x,c!=y`; backslash escapes `,`, `=` and itself. A field outside `known` is a 400 ApiError."""
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


def _bad_field(message: str) -> ApiError:
    return bad_request(message)
