"""Pictures of the page, by Chromium."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

from tests.pictures.world import SeededCluster

# name of the picture -> (view, words to wait for, colours, maximum height: the end of a card, in pixels)
VIEWS = {
    "overview-dark": ("/", "All evictions", "dark", 1000),
    "gang-dark": ("/gangs/vision/detr-large", "Why it waits", "dark", 752),
    "overview-light": ("/", "All evictions", "light", 1000),
    "gang-light": ("/gangs/vision/detr-large", "Why it waits", "light", 752),
    "gangs-light": ("/gangs", "asr-sweep", "light", 1000),
    "queues-light": ("/queues?open=vision", "First waiting", "light", 975),
    "nodes-light": ("/nodes", "12 nodes", "light", 1000),
    "reservations-light": ("/reservations", "Reservation course", "light", 1000),
}
_SIZE: Any = {"width": 1280, "height": 800}
_PATIENCE = 60_000  # milliseconds
_HISTORY_SECONDS = 70


async def photograph(world: SeededCluster, directory: Path) -> list[Path]:
    """Writes a picture of each view; gives their files."""
    from playwright.async_api import async_playwright, expect

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise FileNotFoundError("there is no chromium: apt-get install chromium")
    made = []
    async with async_playwright() as started:
        browser = await started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = await browser.new_context(viewport=_SIZE, reduced_motion="reduce", timezone_id="UTC")
        tab: Any = await context.new_page()
        tab.set_default_timeout(_PATIENCE)
        await tab.goto(world.cluster.dashboard_address)
        await _shown(tab, "Overview")
        origin = world.cluster.dashboard_address.partition("/#")[0]
        # The last gang has its verdict once the page has rehearsed the current state.
        await tab.goto(f"{origin}/#/gangs/speech/asr-sweep")
        await tab.get_by_text("Fix", exact=True).wait_for()
        # The charts have a sample every ten seconds; with a minute of them they can be read.
        await asyncio.sleep(_HISTORY_SECONDS)
        for name, (view, words, colours, highest) in VIEWS.items():
            await tab.set_viewport_size(_SIZE)
            await tab.emulate_media(color_scheme=colours, reduced_motion="reduce")
            # By way of another view: charts keep the colours in which they were drawn.
            await tab.goto(f"{origin}/#/what-if")
            await _shown(tab, "What if")
            await tab.goto(f"{origin}/#{view}")
            await tab.get_by_text(words).first.wait_for()
            await expect(tab.locator("[aria-busy=true]")).to_have_count(0, timeout=_PATIENCE)
            await _fit(tab, highest)
            path = directory / f"{name}.png"
            await tab.screenshot(path=path, animations="disabled")
            made.append(path)
        await browser.close()
    return made


async def _fit(tab: Any, highest: int) -> None:
    """Set the height of the window to that of its content, or to `highest`."""
    bottom = await tab.evaluate(
        "Math.max(...[...document.querySelectorAll('main *')].map((each) => each.getBoundingClientRect().bottom))"
    )
    await tab.set_viewport_size({**_SIZE, "height": max(600, min(highest, round(bottom) + 28))})


async def _shown(tab: Any, title: str) -> None:
    await tab.locator("h1", has_text=title).wait_for()
