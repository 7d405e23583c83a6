"""The pages about Python, executed as notebooks: each block of code is a cell."""

from __future__ import annotations

import re
from pathlib import Path

import nbclient
import nbformat
import pytest

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def cells_of(page: str) -> list[tuple[str, str]]:
    """Return the cells of a page with their expected outputs: a block without a language after a cell, else ""."""
    cells: list[tuple[str, str]] = []
    previous = ""
    for language, text in _BLOCK.findall((DOCS / page).read_text("utf-8")):
        if language == "python":
            cells.append((text, ""))
        elif not language and previous == "python":
            cells[-1] = (cells[-1][0], text)
        previous = language
    return cells


def matches(expected: str, actual: str) -> bool:
    """Return whether an output has the expected lines; `…` stands for any text."""
    pattern = ".*".join(map(re.escape, expected.strip().split("…")))
    return re.fullmatch(pattern, actual.strip(), re.DOTALL) is not None


def test_page_has_cells_with_outputs() -> None:
    assert any("minimum | invalid minimum 3" in expected for _, expected in cells_of("notebook.md"))
    assert matches("a … c", "a b c\n")
    assert not matches("a", "b")


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", ["notebook.md", "gang-functions.md", "dask.md"])
def test_page_runs_as_a_notebook_with_the_outputs_that_it_shows(
    page: str, local_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(local_directory / "kubeconfig"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    cells = cells_of(page)
    assert len(cells) >= 2
    documents: list[dict[str, object]] = [
        {
            "cell_type": "code",
            "id": str(number),
            "source": code,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for number, (code, _) in enumerate(cells)
    ]
    content = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": documents}
    notebook = nbformat.from_dict(content)  # type: ignore[no-untyped-call]
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    for cell, (code, expected) in zip(notebook.cells, cells, strict=True):
        shown = "".join(output.get("text", "") for output in cell.outputs if output.get("name") == "stdout")
        assert not expected or matches(expected, shown), f"{code}\nprinted\n{shown}"
