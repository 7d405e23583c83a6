"""Kubernetes JSONPath: fields, indexes, slices, wildcards, comparisons, and recursive descent (`..`).

https://kubernetes.io/docs/reference/kubectl/jsonpath/ ; apiextensions accepts only simple paths in columns, such
as .status.conditions[?(@.type=="Ready")].status
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from phalanx.model.text.decoding import quoted

_STEP: Final = re.compile(
    r"""\.?\[\?\(\s*@\.?(?P<filter>[^=!<>\s]*)\s*(?:(?P<operator>==|!=|>=|<=|>|<)\s*
            (?P<value>"[^"]*"|'[^']*'|[^)\s]+))?\s*\)\]
      | \.?\[(?P<index>-?\d+)\]
      | \.?\[(?P<slice>-?\d*:-?\d*)\]
      | \.?\[(?P<all>\*)\]
      | \.?\[(?P<quoted>"[^"]*"|'[^']*')\]
      | \.\.(?P<below>(?:\\.|[^.\[\]\\*])+)
      | \.(?P<star>\*)
      | \.(?P<field>(?:\\.|[^.\[\]\\])+)""",
    re.VERBOSE,
)


class PathStep(NamedTuple):
    """One step of a JSONPath: a field, a field at any depth, an index, a slice, all items, or a filter (key path,
    operator, value)."""

    kind: str
    key: str
    operator: str = ""
    value: Any = None


class Path(NamedTuple):
    """Compiled JSONPath; a path without steps matches nothing, like a malformed path."""

    steps: tuple[PathStep, ...]

    def find(self, obj: Any) -> list[Any]:
        """Return the values at the JSONPath in document order, without nulls."""
        values = [obj] if self.steps else []
        for step in self.steps:
            values = [value for item in values for value in _apply(step, item)]
        return [value for value in values if value is not None]


def parse_path(source: str) -> Path:
    """Compile a JSONPath `.a.b[0].c`; braces around it are allowed. A malformed path matches nothing."""
    try:
        return compile_path(source)
    except ValueError:
        return Path(())


def compile_path(source: str) -> Path:
    """Compile a JSONPath. Raise ValueError that names the invalid part."""
    text = source.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    text = text.removeprefix("$")
    if text and text[0] not in ".[":
        text = "." + text
    steps: list[PathStep] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise ValueError(f"{quoted(source.strip())} is no JSONPath: cannot read {quoted(text[at:])}")
        steps.append(_step(match))
        at = match.end()
    return Path(tuple(steps))


def _step(match: re.Match[str]) -> PathStep:
    part = match.groupdict()
    if part["field"] is not None:
        return PathStep("field", re.sub(r"\\(.)", r"\1", part["field"]))
    if part["quoted"] is not None:
        return PathStep("field", part["quoted"][1:-1])
    if part["below"] is not None:
        return PathStep("below", re.sub(r"\\(.)", r"\1", part["below"]))
    if part["slice"] is not None:
        return PathStep("slice", part["slice"])
    if part["index"] is not None:
        return PathStep("index", part["index"])
    if part["filter"] is not None:
        return PathStep("filter", part["filter"], part["operator"] or "", _literal(part["value"]))
    return PathStep("all", "")


def _literal(source: str | None) -> Any:
    if source is None:
        return None
    if source[:1] in "\"'":
        return source[1:-1]
    if source in ("true", "false"):
        return source == "true"
    try:
        return float(source) if "." in source else int(source)
    except ValueError:
        return source


def _apply(step: PathStep, item: Any) -> list[Any]:
    if step.kind == "field":
        return [item[step.key]] if isinstance(item, dict) and step.key in item else []
    if step.kind == "all":
        if isinstance(item, dict):
            return list(item.values())
        return list(item) if isinstance(item, list) else []
    if step.kind == "below":
        return list(_below(step.key, item))
    if not isinstance(item, list):
        return []
    if step.kind == "slice":
        first, _, last = step.key.partition(":")
        return item[int(first) if first else None : int(last) if last else None]
    if step.kind == "index":
        index = int(step.key)
        return [item[index]] if -len(item) <= index < len(item) else []
    return [value for value in item if _passes(step, value)]


def _below(key: str, item: Any) -> Iterator[Any]:
    """Yield the values of a key at any depth below an item, outer values first."""
    waiting = [item]
    while waiting:
        container = waiting.pop()
        if isinstance(container, dict):
            if key in container:
                yield container[key]
            waiting.extend(reversed(container.values()))
        elif isinstance(container, list):
            waiting.extend(reversed(container))


def _passes(step: PathStep, item: Any) -> bool:
    value = item
    for key in step.key.split(".") if step.key else ():
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    if not step.operator:
        return True
    if step.operator == "==":
        return bool(value == step.value)
    if step.operator == "!=":
        return bool(value != step.value)
    if not isinstance(value, (int, float)) or not isinstance(step.value, (int, float)):
        return False
    if step.operator == ">":
        return value > step.value
    if step.operator == "<":
        return value < step.value
    return value >= step.value if step.operator == ">=" else value <= step.value
