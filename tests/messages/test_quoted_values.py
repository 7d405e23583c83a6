"""Values in messages: no message shows a literal of Python."""

from __future__ import annotations

import ast
import socket
from pathlib import Path

import pytest

import phalanx
import phalanx_local
from phalanx.kube.causes import cause_text
from phalanx.model.text.decoding import quoted

# The packages for programs in Python: their users read literals of Python, and they import no decoder.
FOR_PROGRAMS = {"sdk", "dask"}
FILES = [
    file
    for root in (Path(package.__path__[0]) for package in (phalanx, phalanx_local))
    for file in sorted(root.rglob("*.py"))
    if file.relative_to(root).parts[0] not in FOR_PROGRAMS
]
# Errors of a programmer, which no user sees.
INTERNAL = {"AttributeError", "TypeError", "InvalidTransitionError"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("banana", "'banana'"),
        ("it's", '"it\'s"'),
        ("a\x1b[31m", '"a\\u001b[31m"'),
        (None, "null"),
        (True, "true"),
        ([1, "a", None], '[1, "a", null]'),
        ({"a": False}, '{"a": false}'),
        (1.5, "1.5"),
        ("x" * 100, "'" + "x" * 77 + "'..."),
    ],
)
def test_quoted_value_is_a_quoted_text_or_json(value: object, text: str) -> None:
    assert quoted(value) == text


def test_quoted_value_that_json_cannot_show_is_named_by_its_type() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    assert quoted(cycle) == "a list"
    assert quoted({(1, 2): 3}) == "a dict"
    assert quoted(10**5000) == "a int"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(2, "No such file or directory", "x.yaml"), "No such file or directory"),
        (
            OSError(98, "error while attempting to bind on address ('127.0.0.1', 80): in use"),
            "Address already in use",
        ),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ValueError("bad"), "bad"),
    ],
)
def test_cause_of_an_error_has_no_errno_and_no_address(error: Exception, text: str) -> None:
    assert cause_text(error) == text


def test_no_message_contains_the_representation_of_a_value_in_python() -> None:
    found = [f"{file.name}:{line}" for file in FILES for line in _represented(ast.parse(file.read_text("utf-8")))]
    assert found == [], "use quoted() of phalanx.model.text.decoding"


def _represented(tree: ast.Module) -> list[int]:
    """Return the lines with `!r` in a text outside of `__repr__` and internal errors."""
    internal: set[ast.AST] = set()
    for node in ast.walk(tree):
        name = node.name if isinstance(node, ast.FunctionDef) else _called(node)
        if name == "__repr__" or name in INTERNAL:
            internal.update(ast.walk(node))
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.FormattedValue) and node.conversion == ord("r") and node not in internal
    ]


def _called(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
