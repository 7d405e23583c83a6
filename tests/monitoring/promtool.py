"""Prometheus' promtool: on the machine, or out of Debian's package."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest


@cache
def promtool() -> str:
    """The binary; skips the test where it can neither be found nor fetched. Kept where Helm is (tests/install)."""
    found = shutil.which("promtool")
    kept = Path(os.environ.get("PHALANX_TOOLS", Path(tempfile.gettempdir()) / "phalanx-tools")) / "promtool"
    if found is None and not kept.exists():
        with tempfile.TemporaryDirectory() as folder:
            # (apt's own user may not write into this folder.)
            fetch = "apt-get -q -o APT::Sandbox::User=root download prometheus && dpkg --extract ./*.deb out"
            done = subprocess.run(fetch, shell=True, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"promtool cannot be fetched: {done.stderr.strip()[-200:]}")
            kept.parent.mkdir(parents=True, exist_ok=True)
            whole = kept.with_suffix(f".{os.getpid()}")
            shutil.copy(Path(folder) / "out/usr/bin/promtool", whole)
            whole.rename(kept)
    return found or str(kept)
