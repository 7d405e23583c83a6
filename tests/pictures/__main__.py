"""`python -m tests.pictures DIRECTORY`: makes all pictures anew."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.pictures.pages import photograph
from tests.pictures.world import seeded_cluster


async def _make(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as empty:
        async with seeded_cluster(Path(empty)) as world:
            made = await photograph(world, directory)
    for path in sorted(made):
        print(f"{path}  {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    asyncio.run(_make(Path(sys.argv[1])))
