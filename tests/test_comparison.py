"""Behind every cell of ours in docs/compare.md stands a test that is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
LINK = re.compile(r'\[[^\]]+\]\(([^) ]+) "(\w+)"\)')
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (DOCS / "compare.md").read_text("utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("| | ", "|---")) and line.count("|") > 4
]
CHECKED = ("8/26", "11/26")


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_our_cell_names_tests_that_are_there(row: list[str]) -> None:
    assert len(row) == 10, "a column for each of us, and when it was checked"
    assert row[9] in CHECKED
    links = LINK.findall(row[1])
    assert links or row[1] == "no", "without a test we do not say that we have it"
    for file, name in links:
        tree = ast.parse((DOCS / file).read_text("utf-8"))
        functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        assert name in {each.name for each in functions}, f"{file} has no {name}"


def test_comparison_contains_rows_where_only_peers_have_the_feature() -> None:
    assert len(ROWS) > 25
    assert any(row[1] == "no" for row in ROWS)
