"""Kubernetes' own schemas by version, out of a wheel of 108 MB that carries them (kubernetes-validate)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

WHEEL = "kubernetes-validate==1.37.0"


@cache
def validator() -> Path:
    """The command, in an environment of its own; skips the test where it cannot be fetched. Kept where Helm is."""
    tools = Path(os.environ.get("PHALANX_TOOLS", Path(tempfile.gettempdir()) / "phalanx-tools"))
    kept = tools / WHEEL.replace("==", "-")
    command = kept / "bin" / "kubernetes-validate"
    if not command.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", kept], check=True)
        install = [str(kept / "bin" / "python"), "-m", "pip", "install", "--quiet", WHEEL]
        fetched = subprocess.run(install, capture_output=True, text=True, check=False)
        if fetched.returncode:
            pytest.skip(f"{WHEEL} cannot be fetched: {fetched.stderr.strip()[-200:]}")
    return command


def validated(path: Path, version: str) -> tuple[list[str], set[str]]:
    """Return the errors of a file's objects by the schemas of that version, unknown fields included, and the
    kinds without a schema.
    """
    command = [str(validator()), "--kubernetes-version", version, "--strict", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = (done.stdout + done.stderr).splitlines()
    faults = [line for line in told if not line.startswith(("INFO ", "WARN ")) and line.strip()]
    unknown = {line.partition(" for kind ")[2].split()[0] for line in told if "Couldn't find schema" in line}
    assert bool(done.returncode) == bool(faults), told
    return faults, unknown
