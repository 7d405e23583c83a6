"""Lives with a bug in the code: a copy of the package is changed, and another process runs the soak with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import phalanx

from ..life import fault_in, read, relive
from .patches import MUTATIONS, Mutation


class Found(NamedTuple):
    """A found bug: the steps of all lives until its fault."""

    steps: int
    fault: str


#: Steps within which a bug must be found.
MOST_STEPS = 50_000
# Short lives, so that each policy has its turn soon.
_LIFE = 300
_SOURCE = Path(phalanx.__file__).parent


def mutate(mutation: Mutation, package: Path) -> None:
    """Put a bug into a copy of the package. Raise ValueError if its lines are not in the code exactly once."""
    for name, right, wrong in mutation.replacements:
        path = package / name
        text = path.read_text("utf-8")
        if text.count(right) != 1:
            raise ValueError(f"{mutation.name}: its lines are {text.count(right)} times in {name}")
        path.write_text(text.replace(right, wrong), "utf-8")


def unnoticed(steps: int, seed: int, word: str = "") -> list[str]:
    """Run the soak once for each mutation with `word` in its name; print after how many steps it is found, and
    return the others."""
    missed = []
    for mutation in [each for each in MUTATIONS if word in each.name]:
        begun = time.monotonic()
        found = trial(mutation, steps, seed)
        outcome = f"{found.steps:,} steps: {found.fault[:160]}" if found is not None else "NOT FOUND"
        print(f"{mutation.name}: {outcome} ({time.monotonic() - begun:.0f} s)", flush=True)
        if found is None:
            missed.append(mutation.name)
    return missed


def trial(mutation: Mutation, steps: int, seed: int) -> Found | None:
    """Run the soak with a bug in the code; return the first fault that the code without it does not have."""
    with TemporaryDirectory(prefix="phalanx-mutation-") as folder:
        package, report = Path(folder) / "phalanx", Path(folder) / "stories"
        shutil.copytree(_SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
        mutate(mutation, package)
        report.mkdir()
        lived = 0
        while lived < steps:
            story = _first_fault(folder, report, steps - lived, seed)
            if story is None:
                return None
            number = int(story.stem.rpartition("-")[2])
            faulty = read(story)
            lived += (number - seed) * _LIFE + len(faulty.steps)
            seed = number + 1
            if not relive(faulty).fault:
                return Found(lived, fault_in(story))
            story.unlink()
        return None


def _first_fault(folder: str, report: Path, steps: int, seed: int) -> Path | None:
    """Run the soak in another process with the package of a folder; return the story of its first fault."""
    paths = os.pathsep.join([folder, *(path or os.getcwd() for path in sys.path)])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.soak", "--first", "--report", str(report)]
    command += ["--steps", str(steps), "--life", str(_LIFE), "--seed", str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or done.stderr:
        raise RuntimeError(done.stderr)
    return next(iter(report.glob("*.jsonl")), None)
