"""Entry points of a project in tests that run without its installation."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def installed(pyproject: Path) -> Iterator[None]:
    """Register the entry points of a project in this process as `pip install` does; make its folder importable.

    If the project is installed as well, its entry points in `pyproject` override the installed ones.
    """
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    name, version = project["name"], project.get("version", "0")
    lines: list[str] = []
    for group, entries in project.get("entry-points", {}).items():
        lines += [f"[{group}]", *(f"{entry} = {value}" for entry, value in entries.items())]
    path = list(sys.path)
    with TemporaryDirectory(prefix="phalanx-testing-") as folder:
        info = Path(folder) / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(f"Name: {name}\nVersion: {version}\n", "utf-8")
        info.joinpath("entry_points.txt").write_text("\n".join(lines), "utf-8")
        sys.path[:0] = [folder, str(pyproject.parent.resolve())]
        try:
            yield
        finally:
            sys.path[:] = path
