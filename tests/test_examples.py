"""The steps of docs/plugins.md, followed with a copy of each example."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import phalanx

EXAMPLES = Path(__file__).parent.parent / "examples"
SOURCE = Path(phalanx.__file__).parent.parent


@pytest.mark.parametrize("example", sorted(path.parent.name for path in EXAMPLES.glob("*/pyproject.toml")))
def test_tests_of_a_copied_example_pass_without_an_installation(example: str, tmp_path: Path) -> None:
    copy = tmp_path / example
    shutil.copytree(EXAMPLES / example, copy, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", example],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
