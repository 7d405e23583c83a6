"""Lists and the page of one gang in a real browser: columns, groups, orders to many gangs, facts and times."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from tests.dashboard.cluster import VOLCANO, Page, Site, until
from tests.dashboard.test_browser import PATIENCE, Tab, browser, logged_in, playwright, pytestmark
from tests.dashboard.test_layout import _CUT
from tests.dashboard.test_orders import exists

__all__ = ["browser", "pytestmark"]

WIDTHS = [390, 800, 1280]
COLUMNS = "state,gang,queue,user,members,asks,priority,nodes,age,started,start,why"
ZONE = re.compile(r"\d\d:\d\d(:\d\d)? [A-Z]")
#: Values of a row that have no visible box: each column has to be on the screen, also without scrolling sideways.
_HIDDEN = """() => [...document.querySelectorAll(".list tbody tr:not(.gap)")].flatMap((row) =>
  [...row.querySelectorAll("td")].filter((cell) => {
    const box = cell.getBoundingClientRect();
    return cell.textContent.trim() && (!box.width || !box.height || box.right > innerWidth + 1);
  }).map((cell) => `${cell.className}: ${cell.textContent.trim().slice(0, 40)}`))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
async def test_lists_and_gang_page_fit_at_each_width(browser: Any, page: Page, width: int, scheme: str) -> None:
    viewport = {"width": width, "height": 900}
    async with logged_in(browser, page, viewport=viewport, color_scheme=scheme, reduced_motion="reduce") as tab:
        for view, title in (
            ("/gangs", "Gangs"),
            ("/gangs?by=queue&sort=-age", "Gangs"),
            ("/evictions?by=reason", "Evictions"),
            ("/clusters?by=cluster", "Clusters"),
            ("/queues", "Queues"),
        ):
            await tab.go(view)
            await tab.title(title)
            await tab.loaded()
            await tab.tab.locator("tbody tr").first.wait_for()
            assert await tab.tab.evaluate(_CUT) == [], view
            assert await tab.tab.evaluate(_HIDDEN) == [], view
        await tab.go("/gangs/hidden-ns/covert-train")
        await tab.title("covert-train")
        for part in ("Logs", "YAML"):
            await tab.tab.locator("details.opened summary", has_text=part).click()
        await tab.tab.get_by_role("region", name="YAML of PodGroup covert-train").wait_for()
        assert await tab.tab.evaluate(_CUT) == []


async def test_all_columns_are_on_the_screen_at_800_pixels(browser: Any, page: Page) -> None:
    async with logged_in(browser, page, viewport={"width": 800, "height": 900}) as tab:
        await tab.go(f"/gangs?columns={COLUMNS}&q=covert-train")
        await tab.title("Gangs")
        row = tab.tab.locator("tbody tr", has_text="covert-train")
        await row.wait_for()
        assert await tab.tab.evaluate(_HIDDEN) == []
        for label in ("Queue", "Members", "Requests", "Priority", "Nodes", "Age"):
            assert await row.locator(f'td[data-label="{label}"]').is_visible(), label


async def test_chosen_columns_are_remembered_and_groups_fold(browser: Any, page: Page) -> None:
    async with logged_in(browser, page, viewport={"width": 1280, "height": 900}) as tab:
        await tab.go("/gangs")
        await tab.tab.locator("tbody tr", has_text="impossible").wait_for()
        await tab.tab.locator(".menu summary").click()
        await tab.tab.get_by_label("Nodes", exact=True).check()
        await tab.tab.get_by_role("columnheader", name="Nodes").wait_for()
        assert (
            await tab.tab.locator("tbody tr", has_text="covert-train").locator("td.nodes").inner_text() == "2 nodes"
        )
        await tab.go("/queues")
        await tab.title("Queues")
        await tab.go("/gangs?by=queue")
        await tab.tab.get_by_role("columnheader", name="Nodes").wait_for()
        group = tab.tab.get_by_role("button", name="covert-queue")
        await group.wait_for()
        await group.click()
        await tab.tab.get_by_role("link", name="covert-train").wait_for(state="detached")
        assert await tab.tab.get_by_role("link", name="impossible").count() == 1


async def test_selected_gangs_are_cancelled_after_each_effect_was_shown(browser: Any, site: Site) -> None:
    for name in ("sel-a", "sel-b"):
        await site.gang("ours", name, 1, requests={"cpu": "900"})
    async with site.dashboard(writes=True) as page, logged_in(browser, page) as tab:
        await until(lambda: "ours/sel-b" in page.served.watch.tables["gangs"], "the gangs")
        await tab.go("/gangs?q=sel-")
        await playwright.expect(tab.tab.locator("tbody tr")).to_have_count(2, timeout=PATIENCE)
        await tab.tab.get_by_label("Select all gangs").check()
        await tab.tab.get_by_text("2 selected").wait_for()
        orders = tab.tab.get_by_role("group", name="Orders to the selected gangs")
        await orders.get_by_role("button", name="Cancel").click()
        dialog = tab.tab.get_by_role("alertdialog")
        for name in ("sel-a", "sel-b"):
            await dialog.get_by_text(f"Deletes podgroup/{name} in namespace ours").wait_for()
        assert await exists(site, f"{VOLCANO}/namespaces/ours/podgroups/sel-a")
        await dialog.get_by_role("button", name="Delete").click()
        await tab.tab.get_by_text("Cancelled: 2 of 2").wait_for()
    for name in ("sel-a", "sel-b"):
        assert not await exists(site, f"{VOLCANO}/namespaces/ours/podgroups/{name}")


async def test_page_without_orders_has_no_selection(browser: Any, page: Page) -> None:
    async with logged_in(browser, page) as tab:
        await tab.go("/gangs")
        await tab.tab.locator("tbody tr", has_text="impossible").wait_for()
        assert await tab.tab.locator("td.pick").count() == 0


async def facts_of(tab: Tab) -> dict[str, str]:
    rows = tab.tab.locator("dl.facts > div")
    await rows.first.wait_for()
    pairs = [
        (await row.locator("dt").inner_text(), await row.locator("dd").inner_text()) for row in await rows.all()
    ]
    return dict(pairs)


async def test_gang_page_has_job_nodes_start_yaml_and_times_with_a_zone(browser: Any, page: Page) -> None:
    async with logged_in(browser, page, timezone_id="Europe/Berlin", locale="en-GB") as tab:
        await tab.go("/gangs/hidden-ns/covert-train")
        await tab.title("covert-train")
        facts = await facts_of(tab)
        assert (facts["Job"], facts["Nodes"]) == ("podgroup/covert-train", "node-1, shy-node")
        assert ZONE.search(facts["Created"]), facts
        await tab.tab.locator("details.opened summary", has_text="YAML").click()
        yaml = tab.tab.get_by_role("region", name="YAML of PodGroup covert-train")
        await yaml.get_by_text("minMember: 4").wait_for()
        await tab.tab.locator("details.opened summary", has_text="Logs").click()
        assert await tab.tab.get_by_role("combobox", name=re.compile("^Pod")).input_value() == "covert-train-0"
        tab.refusals_expected = True
        await tab.go("/evictions?q=train-9")
        # An event of another day and year has its date; 03:04:05 UTC is 04:04:05 in Berlin.
        await tab.tab.locator("tbody tr").get_by_text(re.compile(r"2 Jan.* 04:04 (GMT\+1|CET)")).wait_for()


async def test_events_are_in_order_and_no_sentence_is_twice_on_a_gang_page(browser: Any, page: Page) -> None:
    async with logged_in(browser, page) as tab:
        await tab.go("/gangs/ours/impossible")
        await tab.title("impossible")
        await tab.tab.locator("ol.feed li").first.wait_for()
        assert await tab.tab.locator("ol.feed li strong").first.inner_text() == "Created"
        times = await tab.tab.locator("ol.feed .when").all_inner_texts()
        assert times == sorted(times)
        text = await tab.tab.locator("main").inner_text()
        sentences = Counter(part.strip() for part in re.split(r"[.\n;]", text) if len(part.strip()) > 30)
        assert [sentence for sentence, count in sentences.items() if count > 1] == []


@pytest.mark.parametrize(
    "view", ["/queues", "/nodes", "/gangs/hidden-ns/covert-train", "/clusters", "/reservations"]
)
async def test_each_entry_of_a_legend_has_a_value(browser: Any, page: Page, view: str) -> None:
    async with logged_in(browser, page) as tab:
        await tab.go(view)
        await tab.loaded()
        await tab.tab.locator(".legend li").first.wait_for()
        entries = await tab.tab.locator(".legend li:has(.swatch:not(.number))").all_inner_texts()
        assert entries
        assert [entry for entry in entries if not re.search(r"\d", entry)] == []


async def test_overview_chart_names_the_last_value_of_each_queue(browser: Any, page: Page) -> None:
    async with logged_in(browser, page) as tab:
        legend = tab.tab.locator(".chart-legend")
        await legend.wait_for(timeout=60_000)
        await legend.get_by_text("covert-queue").wait_for()
        entries = await legend.locator("li:has(.swatch)").all_inner_texts()
        assert all(re.search(r"\d %|–", entry) for entry in entries), entries
