"""Metrics that PromQL queries name, each with the labels that they use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import promql_parser

from phalanx.daemon.metrics.families import FAMILIES, Kind

# Labels that Prometheus adds to every sample, and its own metrics.
_TARGET = {"job", "instance"}
_OTHERS = {"up": set[str](), "process_resident_memory_bytes": set[str](), "phalanx_process_ready": {"part"}}
_PARTS = ("expr", "lhs", "rhs", "vector_selector", "param")


def faults(query: str) -> list[str]:
    """Return the reasons why a query can find no series."""
    expression = promql_parser.parse(query)
    return [*_faults(expression), *_grouping(expression)]


def metrics(query: str) -> set[str]:
    return {selector.name for selector in _selectors(promql_parser.parse(query))}


def _faults(expression: Any) -> Iterator[str]:
    for selector in _selectors(expression):
        labels = labels_of(selector.name)
        if labels is None:
            yield f"there is no metric {selector.name}"
            continue
        asked = {matcher.name for matcher in selector.matchers.matchers}
        if "job" not in asked:
            yield f"{selector.name} of any job"
        for unknown in sorted(asked - labels - _TARGET):
            yield f"{selector.name} has no label {unknown}"


def _grouping(expression: Any) -> Iterator[str]:
    """Labels that an aggregation keeps and that nothing below it has."""
    if isinstance(expression, promql_parser.AggregateExpr) and expression.modifier is not None:
        there = {"queue"} if "label_replace" in str(expression) else set[str]()
        for selector in _selectors(expression):
            there |= (labels_of(selector.name) or set()) | _TARGET
        for unknown in sorted(set(expression.modifier.labels) - there):
            yield f"nothing in {expression} has the label {unknown}"
    for part in _parts(expression):
        yield from _grouping(part)


def labels_of(name: str) -> set[str] | None:
    """Return the labels of a series, None where it is not exported."""
    if name in _OTHERS:
        return _OTHERS[name]
    family = FAMILIES.get(name)
    if family is not None and family.kind is not Kind.HISTOGRAM:
        return set(family.labels)
    for suffix, more in (("_bucket", {"le"}), ("_sum", set[str]()), ("_count", set[str]())):
        family = FAMILIES.get(name.removesuffix(suffix))
        if name.endswith(suffix) and family is not None and family.kind is Kind.HISTOGRAM:
            return set(family.labels) | more
    return None


def _selectors(expression: Any) -> Iterator[Any]:
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for part in _parts(expression):
        yield from _selectors(part)


def _parts(expression: Any) -> Iterator[Any]:
    for name in _PARTS:
        part = getattr(expression, name, None)
        if part is not None:
            yield part
    yield from getattr(expression, "args", ())
