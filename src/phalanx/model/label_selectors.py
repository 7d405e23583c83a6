"""Label selectors in query syntax: `a=b,c!=d,e in (x,y),f notin (z),g,!h`.

Grammar: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
"""

from __future__ import annotations

import re

from phalanx.model.selectors import Requirement
from phalanx.model.text.decoding import quoted

_TOKEN = re.compile(r"\s*(==|!=|=|!|,|\(|\)|<|>|[^\s,()=!<>]+)")
_KEY = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")


def parse_label_selector(source: str) -> tuple[Requirement, ...]:
    """Parse a label selector to its requirements; an empty text has none. Raise ValueError for an invalid one."""
    tokens = _tokens(source)
    requirements: list[Requirement] = []
    at = 0
    while at < len(tokens):
        requirement, at = _requirement(tokens, at)
        requirements.append(requirement)
        if at < len(tokens):
            if tokens[at] != ",":
                raise ValueError(f"found '{tokens[at]}', expected: ',' or 'end of string'")
            at += 1
            if at == len(tokens):
                raise ValueError("found '', expected: identifier after ','")
    return tuple(requirements)


def _tokens(source: str) -> list[str]:
    tokens, at = [], 0
    stripped = source.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None:
            raise ValueError(f"unexpected character in {quoted(source)}")
        tokens.append(match.group(1))
        at = match.end()
    return tokens


def _requirement(tokens: list[str], at: int) -> tuple[Requirement, int]:
    if tokens[at] == "!":
        key = _key(tokens, at + 1)
        return Requirement(key, "DoesNotExist"), at + 2
    key = _key(tokens, at)
    at += 1
    operator = tokens[at] if at < len(tokens) else ","
    if operator == ",":
        return Requirement(key, "Exists"), at
    if operator in ("=", "==", "!=", "<", ">"):
        value = ""
        if at + 1 < len(tokens) and tokens[at + 1] not in (",", ")"):
            value = _value(tokens[at + 1])
            at += 1
        name = {"!=": "NotIn", "<": "Lt", ">": "Gt"}.get(operator, "In")
        return Requirement(key, name, (value,)), at + 1
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
        raise ValueError(f"invalid label value {quoted(value)}")
    return value


def _values(tokens: list[str], at: int) -> tuple[tuple[str, ...], int]:
    if at >= len(tokens) or tokens[at] != "(":
        raise ValueError("expected: '('")
    values: list[str] = []
    expect_value = True
    for index in range(at + 1, len(tokens)):
        token = tokens[index]
        if token == ")":
            if expect_value:
                values.append("")
            return tuple(values), index + 1
        if token == ",":
            if expect_value:
                values.append("")
            expect_value = True
        else:
            values.append(_value(token))
            expect_value = False
    raise ValueError("expected: ')'")
