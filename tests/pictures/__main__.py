"""`python -m tests.pictures DIRECTORY`: draw all pictures again."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.pictures.diagrams import draw
from tests.pictures.pages import photograph
from tests.pictures.terminal import record
from tests.pictures.world import seeded_cluster


async def _make(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as empty:
        async with seeded_cluster(Path(empty)) as world:
            made = [*await photograph(world, directory), *await record(world, directory), *draw(directory)]
    for path in sorted(made):
        print(f"{path}  {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(_make(Path(sys.argv[1])))
