"""Install the wheel and run the core's tests with each Python that the machine has."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.11", "3.12", "3.13")
FOLDERS = ("model", "cluster", "dialects", "execution", "status", "daemon")
SELECTION = "not slow and not thorough and not e2e"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="phalanx-pythons-") as scratch:
        build_wheels(Path(scratch))
        results = {version: try_version(version, Path(scratch)) for version in VERSIONS}
    print()
    for version, result in results.items():
        print(f"Python {version}: {result}")
    return 1 if "failed" in results.values() else 0


def build_wheels(scratch: Path) -> None:
    """Build the wheels of both distributions into `scratch`."""
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-qq",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        scratch,
    ]
    for distribution in (ROOT, ROOT / "packages" / "local"):
        subprocess.run([*pip, distribution], check=True)


def try_version(version: str, scratch: Path) -> str:
    """Return "passed", "failed" or "not on this machine"."""
    interpreter = find_interpreter(version)
    if interpreter is None:
        return "not on this machine"
    print(f"== Python {version}: {interpreter}", flush=True)
    environment = scratch / f"python-{version}"
    pip: list[str | Path] = [environment / "bin" / "pip", "install", "-qq", "--disable-pip-version-check"]
    pytest: list[str | Path] = [environment / "bin" / "python", "-m", "pytest", "-n", "2", "-m", SELECTION]
    wheel = next(scratch.glob("phalanx_scheduler-*.whl"))
    steps: list[list[str | Path]] = [
        [interpreter, "-m", "venv", environment],
        [*pip, "--find-links", scratch, "--constraint", write_versions(scratch), f"{wheel}[dev,local]"],
        [environment / "bin" / "phalanx", "--version"],
        [*pytest, *(f"tests/{folder}" for folder in FOLDERS)],
    ]
    for step in steps:
        if subprocess.run(step, cwd=ROOT, check=False).returncode:
            return "failed"
    return "passed"


def find_interpreter(version: str) -> Path | None:
    """Return an interpreter of this version from PATH or, where its shims refuse, from pyenv."""
    on_path = shutil.which(f"python{version}")
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for candidate in (*([Path(on_path)] if on_path else []), *pyenv):
        asked: list[str | Path] = [candidate, "-c", "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return candidate
    return None


def write_versions(scratch: Path) -> Path:
    """Write the versions of constraints.txt without the hashes, which are those of CPython 3.11's wheels."""
    pinned = re.findall(
        r"^([A-Za-z0-9_.-]+==[^\s\\]+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE
    )
    path = scratch / "versions.txt"
    path.write_text("\n".join([*pinned, ""]), "utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
