"""At three sizes of a window nothing is cut off: each view as it is laid out by a browser; and orders by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dashboard.cluster import VOLCANO, Page, Site, until
from tests.dashboard.test_browser import PATIENCE, VIEWS, browser, logged_in, playwright, pytestmark
from tests.dashboard.test_orders import exists

__all__ = ["browser", "pytestmark"]

SIZES = [(1280, 800), (1024, 768), (800, 900), (390, 844)]
# Clipped content: the page itself, and words in elements that do not scroll. Messages may end in an ellipsis,
# with a title.
_CUT = """() => {
  const wrong = [];
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) wrong.push(`the page is ${wide} wide`);
  for (const each of document.querySelectorAll("main :is(h1, h2, h3, th, td, dt, dd, label, button, .tag)")) {
    const style = getComputedStyle(each);
    if (!each.getClientRects().length || each.title || each.querySelector("[title]")) continue;
    if (style.overflowX !== "visible" && each.scrollWidth > each.clientWidth + 1) {
      wrong.push(`${each.tagName}.${each.className} ${each.textContent.trim().slice(0, 60)}`);
    }
  }
  for (const each of document.querySelectorAll("main :is(label, button, thead th)")) {
    if (!each.getClientRects().length) continue;
    const lines = document.createRange();
    for (const part of each.childNodes) {
      if (part.nodeType !== Node.TEXT_NODE || !part.data.trim()) continue;
      lines.selectNodeContents(part);
      if (new Set([...lines.getClientRects()].map((box) => Math.round(box.top))).size > 1) {
        wrong.push(`breaks over lines: ${part.data.trim()}`);
      }
    }
  }
  return wrong;
}"""


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_nothing_is_cut_off(browser: Any, page: Page, size: tuple[int, int]) -> None:
    viewport = {"width": size[0], "height": size[1]}
    async with logged_in(browser, page, viewport=viewport, reduced_motion="reduce") as tab:
        for view, title in VIEWS.items():
            await tab.go(view)
            await tab.title(title)
            await tab.loaded()
            assert await tab.tab.evaluate(_CUT) == [], view


async def test_gang_is_cancelled_only_after_its_pods_were_listed(browser: Any, site: Site) -> None:
    await site.gang("ours", "unwanted", 1, requests={"cpu": "900"})
    group = f"{VOLCANO}/namespaces/ours/podgroups/unwanted"
    async with site.dashboard(writes=True) as page, logged_in(browser, page) as tab:
        await until(lambda: "ours/unwanted" in page.served.watch.tables["gangs"], "the gang")
        await tab.go("/gangs/ours/unwanted")
        await tab.title("unwanted")
        dialog = tab.tab.get_by_role("alertdialog")
        await tab.tab.get_by_role("button", name="Cancel").click()
        effect = "Deletes podgroup/unwanted in namespace ours, with its 1 pod (0 running)"
        await dialog.get_by_text(effect).wait_for()
        await dialog.get_by_role("button", name="No change").click()
        await playwright.expect(dialog).to_have_count(0, timeout=PATIENCE)
        assert await exists(site, group)
        await tab.tab.get_by_role("button", name="Cancel").click()
        await dialog.get_by_role("button", name="Delete").click()
        await tab.tab.get_by_text("podgroup/unwanted cancelled").wait_for()
        assert not await exists(site, group)
        tab.refusals_expected = True


async def test_without_writes_there_are_no_buttons(browser: Any, page: Page) -> None:
    async with logged_in(browser, page) as tab:
        await tab.go("/gangs/ours/impossible")
        await tab.title("impossible")
        await tab.tab.get_by_text("Fix", exact=True).wait_for()
        assert await tab.tab.get_by_role("group", name="Orders").count() == 0
