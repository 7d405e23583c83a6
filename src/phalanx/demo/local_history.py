"""Usage database of `phalanx up`: beside the stored objects, else a new file at each start."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

#: Age at which `phalanx up` removes recorded runs, and the databases of earlier starts.
KEPT_DAYS = 90
_COMPANIONS = ("", "-wal", "-shm")


def missing_extra() -> str:
    """Return one line that names the missing libraries of the usage database, "" if they are installed."""
    if all(map(importlib.util.find_spec, ("sqlalchemy", "alembic"))):
        return ""
    return "history is not recorded: pip install 'phalanx-scheduler[history]'"


def history_file(directory: Path, data: Path | None, now: float) -> Path:
    """Return the path of the usage database for a start at `now`, in seconds since the epoch.

    The recorder accepts one cluster per database. Without `data` each start is a new cluster. A database that
    remains beside missing `data` is renamed. Databases of earlier starts are removed after KEPT_DAYS.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    _remove_old(directory, now)
    if data is None:
        return _unused(directory, f"history-{stamp}")
    file = data.with_name(f"{data.name}-history.db")
    if file.exists() and not data.exists():
        aside = _unused(file.parent, f"{data.name}-history-{stamp}")
        for companion in _COMPANIONS:
            part = Path(f"{file}{companion}")
            if part.exists():
                part.rename(f"{aside}{companion}")
    return file


def _unused(directory: Path, stem: str) -> Path:
    """Return a path in `directory` that does not exist; two starts within a second differ by a number."""
    file, number = directory / f"{stem}.db", 1
    while file.exists():
        number += 1
        file = directory / f"{stem}-{number}.db"
    return file


def _remove_old(directory: Path, now: float) -> None:
    for file in directory.glob("history-[0-9]*.db"):
        if file.stat().st_mtime < now - KEPT_DAYS * 86_400:
            for companion in _COMPANIONS:
                Path(f"{file}{companion}").unlink(missing_ok=True)
