"""Lives with a bug in the code: a copy of the package is changed, and another process runs the soak with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import phalanx

from .patches import MUTATIONS, Mutation

#: Steps within which a bug must be found.
MOST_STEPS = 50_000
_SOURCE = Path(phalanx.__file__).parent


def mutate(mutation: Mutation, package: Path) -> None:
    """Put a bug into a copy of the package. Raise ValueError if its lines are not in the code exactly once."""
    path = package / mutation.path
    text = path.read_text("utf-8")
    if text.count(mutation.right) != 1:
        raise ValueError(f"{mutation.name}: its lines are {text.count(mutation.right)} times in {mutation.path}")
    path.write_text(text.replace(mutation.right, mutation.wrong), "utf-8")


def unnoticed(steps: int, seed: int) -> list[str]:
    """Run the soak once for each mutation; print after how many steps it is found, and return the others."""
    missed = []
    for mutation in MUTATIONS:
        begun = time.monotonic()
        found = trial(mutation, steps, seed)
        print(f"{mutation.name}: {found or 'NOT FOUND'} ({time.monotonic() - begun:.0f} s)", flush=True)
        if not found:
            missed.append(mutation.name)
    return missed


def trial(mutation: Mutation, steps: int, seed: int) -> str:
    """Run the soak with a bug in the code; return the first fault with its step, "" if there is none."""
    with TemporaryDirectory(prefix="phalanx-mutation-") as folder:
        package = Path(folder) / "phalanx"
        shutil.copytree(_SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
        mutate(mutation, package)
        paths = os.pathsep.join([folder, *(path or os.getcwd() for path in sys.path)])
        command = [sys.executable, "-m", "tests.soak", "--first", "--steps", str(steps), "--seed", str(seed)]
        environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1) or done.stderr:
            raise RuntimeError(done.stderr)
        return done.stdout.strip().splitlines()[-1][:200] if done.returncode else ""
