"""The two distributions of this repository: their content, and their common installation without an index."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def project(folder: str) -> dict[str, object]:
    found = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert isinstance(found, dict)
    return found


def test_both_distributions_have_one_version_and_require_each_other_in_it() -> None:
    main, local = project(""), project("packages/local")
    version = main["version"]
    assert local["version"] == version
    dependencies, extras = local["dependencies"], main["optional-dependencies"]
    assert isinstance(dependencies, list)
    assert isinstance(extras, dict)
    assert f"phalanx-scheduler=={version}" in dependencies
    assert f"phalanx-local=={version}" in extras["local"]


@pytest.mark.slow
def test_both_wheels_install_without_an_index_and_start_a_command(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    build = (*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(wheels))
    subprocess.run([*build, ".", "./packages/local"], cwd=ROOT, check=True)
    packed = {
        path.name.partition("-")[0]: {name.partition("/")[0] for name in zipfile.ZipFile(path).namelist()}
        for path in wheels.iterdir()
    }
    assert {name: {each for each in found if "dist-info" not in each} for name, found in packed.items()} == {
        "phalanx_scheduler": {"phalanx"},
        "phalanx_local": {"phalanx_local"},
    }
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--target", str(site), *map(str, wheels.iterdir())], check=True
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    for module in ("phalanx_local.server", "phalanx.testing"):
        code = f"import {module}; print({module}.__file__)"
        printed = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
        )
        assert printed.stdout.startswith(str(site))
    subprocess.run(
        [sys.executable, "-m", "phalanx.cli", "up", "--help"],
        env=environment,
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
