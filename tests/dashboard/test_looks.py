"""Appearance of the page at three sizes, compared with the last reviewed pictures.

Pictures are compared as thumbnails of grey cells of 16 x 16 pixels: other fonts and ages of seconds do not
matter, but a missing column, a moved card or a lost colour does. After an intended change, look at the page and
record new pictures: `PHALANX_NEW_LOOKS=1 pytest tests/dashboard/test_looks.py`.
"""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.dashboard.cluster import Page
from tests.dashboard.conftest import seeded_site
from tests.dashboard.test_browser import Tab, browser, logged_in, pytestmark

__all__ = ["browser", "pytestmark"]

LOOKS = Path(__file__).parent / "looks"
SIZES = [(1280, 800), (1024, 768), (390, 844)]
VIEWS = {
    "overview": ("/", "Overview"),
    "gangs": ("/gangs", "Gangs"),
    "gang": ("/gangs/ours/train", "train"),
    "nodes": ("/nodes", "Nodes"),
    "clusters": ("/clusters", "Clusters"),
    "what-if": ("/what-if", "What if"),
}
#: Greys of 256: allowed mean difference of two equal looks, allowed difference of one cell, and the per cent of
#: cells beyond it.
MEAN, CELL, ODD_CELLS = 0.7, 24, 0.7
# How wide and tall letters are here: with other fonts lines break elsewhere, and every page looks different.
_FONTS = """() => {
  const width = (tag) => {
    const line = document.createElement(tag);
    line.textContent = "Waiting gangs 0123456789 mWil";
    line.style.position = "absolute";
    line.style.whiteSpace = "nowrap";
    line.style.fontSize = "100px";
    document.querySelector("main").append(line);
    const box = line.getBoundingClientRect();
    line.remove();
    return `${Math.round(box.width)} ${Math.round(box.height)}`;
  };
  return ["p", "h1", "code"].map(width).join(" ");
}"""
# (The queues' table draws the last hour, which a new cluster lacks.) A page that still draws is photographed
# again.
_TRIES = 10
# A picture as greys of 0 to 255, one for each cell, row by row; and as a small picture of them.
_SMALL = """async ([picture, cell]) => {
  const shot = await createImageBitmap(await (await fetch(`data:image/png;base64,${picture}`)).blob());
  const wide = Math.max(1, Math.floor(shot.width / cell)), tall = Math.max(1, Math.floor(shot.height / cell));
  const canvas = new OffscreenCanvas(wide, tall), pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = true;
  pen.imageSmoothingQuality = "high";
  pen.filter = "grayscale(1)";
  pen.drawImage(shot, 0, 0, wide, tall);
  const dots = pen.getImageData(0, 0, wide, tall).data;
  const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: "image/png" })).arrayBuffer());
  const greys = Array.from({ length: wide * tall }, (_, index) => dots[4 * index]);
  return { greys, png: btoa(String.fromCharCode(...bytes)) };
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def still(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Page]:
    """A page over a cluster in which nothing happens."""
    async with seeded_site(tmp_path_factory.mktemp("looks")) as made, made.dashboard() as page:
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_page_looks_like_its_reviewed_picture(
    browser: Any, still: Page, size: tuple[int, int], scheme: str
) -> None:
    viewport = {"width": size[0], "height": size[1]}
    wrong: dict[str, str] = {}
    context = await browser.new_context()
    try:
        desk = await context.new_page()
        async with logged_in(
            browser, still, viewport=viewport, color_scheme=scheme, reduced_motion="reduce"
        ) as tab:
            fonts = str(await tab.tab.evaluate(_FONTS))
            if os.environ.get("PHALANX_NEW_LOOKS"):
                LOOKS.mkdir(exist_ok=True)
                (LOOKS / "fonts.txt").write_text(f"{fonts}\n", "utf-8")
            elif fonts != (LOOKS / "fonts.txt").read_text("utf-8").strip():
                pytest.skip("this machine has other fonts than the one where the pictures were made")
            for name, (view, title) in VIEWS.items():
                await tab.go(view)
                await tab.title(title)
                await tab.loaded()
                if name == "overview":  # a new page has no chart before its second sample
                    await tab.tab.wait_for_selector(".chart", timeout=60_000)
                known = LOOKS / f"{name}-{size[0]}-{scheme}.png"
                if os.environ.get("PHALANX_NEW_LOOKS"):
                    known.write_bytes(base64.b64decode((await settled_look(tab, desk))["png"]))
                    continue
                was = await desk.evaluate(_SMALL, [base64.b64encode(known.read_bytes()).decode(), 1])
                said = "not looked at"
                for _ in range(_TRIES):
                    said = differs(was["greys"], (await look(tab, desk))["greys"])
                    if not said:
                        break
                    await tab.tab.wait_for_timeout(500)
                if said:
                    wrong[f"{name} {size[0]} {scheme}"] = said
    finally:
        await context.close()
    assert wrong == {}


async def settled_look(tab: Tab, desk: Any) -> dict[str, Any]:
    """Return the look of a page that has not changed for two seconds."""
    before = await look(tab, desk)
    while True:
        await tab.tab.wait_for_timeout(2000)
        after: dict[str, Any] = await look(tab, desk)
        if after["greys"] == before["greys"]:
            return after
        before = after


async def look(tab: Tab, desk: Any) -> Any:
    """Return a picture without the parts that show passing time."""
    shot = base64.b64encode(
        await tab.tab.screenshot(mask=[tab.tab.locator(".chart")], mask_color="#808080")
    ).decode()
    return await desk.evaluate(_SMALL, [shot, 16])


def differs(was: list[int], now: list[int]) -> str:
    """Return the difference of two looks; "" where a person sees none."""
    if len(was) != len(now):
        return f"{len(was)} cells became {len(now)}"
    apart = [abs(before - after) for before, after in zip(was, now, strict=True)]
    mean, odd = sum(apart) / len(apart), 100 * sum(each > CELL for each in apart) / len(apart)
    return f"mean difference {mean:.1f}, {odd:.1f} % of the cells" if mean > MEAN or odd > ODD_CELLS else ""


async def test_missing_card_is_detected() -> None:
    page = [240] * 4000
    card = [240] * 1200 + [120] * 600 + [240] * 2200
    assert differs(page, [*page[:-10], *[0] * 10]) == ""
    assert differs(page, card)
    assert differs(page, [239] * 4000)
