"""Reason codes in the source of the scheduler and its controllers, with the template of one message each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import phalanx

SOURCE = Path(phalanx.__file__).parent
# Packages whose messages are tables, pages and answers of commands, not conditions and events.
_OTHERS = frozenset({"cli", "dashboard", "demo", "hub", "simulation", "kube", "reports", "webhook", "accounting"})
_CODE = re.compile(r"[A-Z][a-z]+(?:[A-Z][A-Za-z]*)+|Scheduled|Synced|Unschedulable|Evicting")
#: Position of the code in the arguments of these calls; -1: keyword `reason` only.
_CALLS = {
    "Verdict": 0, "Problem": 0, "Blocked": 0, "of": 0,
    "ObjectWarning": 2, "warn": 0, "record": -1, "_publish": 3,
    "_compare": -1, "_publish_gang": 1, "run_time_ends": 1,
}  # fmt: skip


@cache
def codes_in_source() -> dict[str, str]:
    """Return code -> template of the first message with this code; "" where it is no literal."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    constants = {
        (path, node.targets[0].id): node.value.value
        for path, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    found: dict[str, str] = {}
    for path, tree in trees.items():
        if path.relative_to(SOURCE).parts[0] in _OTHERS:
            continue
        names = _names(path, tree, constants)
        for code, template in _calls(tree, names):
            if _CODE.fullmatch(code) and not found.get(code):
                found[code] = template
    return found


def _names(path: Path, tree: ast.Module, constants: dict[tuple[Path, str], str]) -> dict[str, str]:
    names = {name: value for (origin, name), value in constants.items() if origin == path}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("phalanx."):
            origin = SOURCE.parent / ((node.module or "").replace(".", "/") + ".py")
            for alias in node.names:
                if (origin, alias.name) in constants:
                    names[alias.asname or alias.name] = constants[origin, alias.name]
    return names


def _calls(tree: ast.Module, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        place = _CALLS.get(name)
        if place is None:
            continue
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        code = keywords.get("reason") or keywords.get("code")
        if code is None and 0 <= place < len(node.args):
            code = node.args[place]
        text = keywords.get("note") or next(iter(node.args[place + 1 :]), None)
        template = _template(text)
        if name == "warn" and len(node.args) == 4:
            template = f"{_template(node.args[1])} is …; {_template(node.args[3])}"
        for value in _values(code, names):
            yield value, template


def _values(node: ast.expr | None, names: dict[str, str]) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.Name) and node.id in names:
        return [names[node.id]]
    if isinstance(node, ast.IfExp):
        return _values(node.body, names) + _values(node.orelse, names)
    return []


def _template(node: ast.expr | None) -> str:
    """Return a text of the source with `…` for its variables."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return "…" if node is not None else ""
