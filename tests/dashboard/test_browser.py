"""The page in a real browser: every view, live changes, login, and a tenant with limited rights.

In every view: no error on the console, nothing blocked by the content policy, no request to another host.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from phalanx.accounting.sums import DAY
from phalanx.dashboard.access import AddressLogin
from tests.accounting.world import a_pod
from tests.dashboard.cluster import SECRETS, Page, Site
from tests.dashboard.test_accounts import recorded

playwright = pytest.importorskip(
    "playwright.async_api", reason="playwright is not installed: pip install -e .[browser]"
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
]
PATIENCE = 30_000  # milliseconds
VIEWS = {
    "/": "Overview",
    "/gangs": "Gangs",
    "/gangs/ours/train": "train",
    "/pods/ours/alone": "alone",
    "/queues?open=covert-queue": "Queues",
    "/nodes": "Nodes",
    "/nodes?mode=fragments&resource=nvidia.com/gpu&size=2": "Nodes",
    "/reservations": "Reservations",
    "/evictions": "Evictions",
    "/clusters": "Clusters",
    "/clusters?q=train&open=ours/train-uidtrain": "Clusters",
    "/what-if": "What if",
}


class Tab:
    """A tab that records errors, blocked content and foreign requests."""

    def __init__(self, tab: Any, origin: str) -> None:
        self.tab = tab
        self.origin = origin
        self.wrong: list[str] = []
        self.refusals_expected = False
        tab.set_default_timeout(PATIENCE)
        tab.on("console", self._said)
        tab.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        tab.on("request", self._requested)

    def _said(self, message: Any) -> None:
        # Browsers write each refusal of a request to the console themselves.
        if self.refusals_expected and "the server responded with a status of 4" in message.text:
            return
        if message.type in ("error", "warning"):
            self.wrong.append(f"console: {message.text}")

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:")):
            self.wrong.append(f"request to {request.url}")

    async def go(self, view: str) -> None:
        await self.tab.goto(f"{self.origin}/#{view}")

    async def title(self, text: str) -> None:
        await self.tab.locator("h1", has_text=re.compile(f"^{re.escape(text)}$")).wait_for()

    async def loaded(self) -> None:
        await playwright.expect(self.tab.locator("[aria-busy=true]")).to_have_count(0, timeout=PATIENCE)

    async def text(self) -> str:
        found: str = await self.tab.locator("#app").inner_text()
        return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Any]:
    async with playwright.async_playwright() as started:
        made = await started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        await made.close()


@contextlib.asynccontextmanager
async def tab_of(browser: Any, page: Page, **options: Any) -> AsyncIterator[Tab]:
    context = await browser.new_context(**options)
    try:
        tab = Tab(await context.new_page(), page.url)
        yield tab
        assert tab.wrong == []
    finally:
        await context.close()


@contextlib.asynccontextmanager
async def logged_in(browser: Any, page: Page, **options: Any) -> AsyncIterator[Tab]:
    """By the address that was printed."""
    assert isinstance(page.login, AddressLogin)
    async with tab_of(browser, page, **options) as tab:
        await tab.tab.goto(f"{page.url}/#login={page.login.ticket}")
        await tab.title("Overview")
        yield tab


@pytest.mark.parametrize(
    "options",
    [
        {"color_scheme": "dark", "viewport": {"width": 1360, "height": 900}},
        {"color_scheme": "light", "viewport": {"width": 375, "height": 780}},
    ],
    ids=["dark", "light and narrow"],
)
async def test_every_view_is_drawn_and_fits(browser: Any, page: Page, options: dict[str, Any]) -> None:
    async with logged_in(browser, page, **options) as tab:
        for view, title in VIEWS.items():
            await tab.go(view)
            await tab.title(title)
            await tab.loaded()
            wide = await tab.tab.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{view} is {wide} pixels too wide"


async def test_ticket_is_removed_from_the_address_and_a_reload_stays_logged_in(browser: Any, page: Page) -> None:
    async with logged_in(browser, page) as tab:
        assert "login=" not in tab.tab.url
        await tab.tab.reload()
        await tab.title("Overview")


async def test_why_a_gang_waits_is_one_look_away(browser: Any, page: Page) -> None:
    async with logged_in(browser, page) as tab:
        await tab.go("/gangs?q=impossible")
        await tab.tab.get_by_role("link", name="impossible").click()
        await tab.title("impossible")
        await tab.tab.get_by_text("Fix", exact=True).wait_for()
        text = await tab.text()
        assert "Insufficient cpu" in text
        assert "phalanx why podgroup/impossible -n ours" in text
        # The reason is shown once, though eviction attempts fail for the same reason.
        told = await tab.tab.locator("section.why").inner_text()
        assert told.count("request at most 8 cpu per pod") == 1
        assert await tab.tab.locator("svg.timeline rect").count() == 2


async def test_shares_over_weeks_are_drawn_from_accounting_or_reported_missing(
    browser: Any, site: Site, page: Page, tmp_path: Path
) -> None:
    async with logged_in(browser, page) as tab:
        await tab.go("/queues")
        await tab.tab.get_by_text("No accounting database is configured").wait_for()
    now = int(time.time())
    yesterday = now - now % DAY - DAY
    held = a_pod("held", "g", queue="our-queue", created=yesterday, bound=yesterday)
    database = recorded(tmp_path / "accounts.db", held, now=now)
    try:
        async with site.dashboard(database=database) as other, logged_in(browser, other) as tab:
            await tab.go("/queues")
            shares = tab.tab.get_by_role("region", name="Shares over time")
            await shares.locator(".chart-legend").get_by_text("our-queue").wait_for()
            await shares.get_by_role("button", name="90d").click()
            await shares.get_by_role("cell", name="our-queue", exact=True).wait_for()
    finally:
        database.close()


async def test_a_new_gang_appears_without_a_reload(browser: Any, site: Site, page: Page) -> None:
    async with logged_in(browser, page) as tab:
        await tab.go("/gangs?q=fresh")
        await tab.tab.get_by_text("No gang matches the filter").wait_for()
        await site.gang("ours", "fresh", 1, requests={"cpu": "2000"})
        row = tab.tab.locator("tbody tr", has_text="fresh")
        await row.get_by_text("nodes lack cpu").wait_for()
        await site.client.delete("/api/v1/namespaces/ours/pods/fresh-0", grace_seconds=0)
        await site.client.delete("/apis/scheduling.volcano.sh/v1beta1/namespaces/ours/podgroups/fresh")
        await row.wait_for(state="detached")


async def test_keys_move_filter_and_open(browser: Any, page: Page) -> None:
    async with logged_in(browser, page) as tab:
        await tab.tab.keyboard.press("g")
        await tab.tab.keyboard.press("w")
        await tab.title("Gangs")
        await tab.tab.locator("tbody tr", has_text="impossible").wait_for()
        await tab.tab.keyboard.press("/")
        await tab.tab.keyboard.type("impossible")
        await playwright.expect(tab.tab.locator("tbody tr")).to_have_count(1, timeout=PATIENCE)
        await tab.tab.keyboard.press("Tab")
        await tab.tab.locator("#title").focus()
        await tab.tab.keyboard.press("j")
        await tab.tab.locator("tr.selected").wait_for()
        await tab.tab.keyboard.press("Enter")
        await tab.title("impossible")
        await tab.tab.keyboard.press("?")
        await tab.tab.get_by_role("dialog").wait_for()
        await tab.tab.keyboard.press("Escape")
        await tab.tab.get_by_role("dialog").wait_for(state="detached")


async def test_a_name_that_is_markup_is_text(browser: Any, site: Site, page: Page) -> None:
    """Events may say anything."""
    await site.evicted("ours", "odd", "<img src=x onerror=alert(1)> {{constructor}} \u001b[31mred")
    async with logged_in(browser, page) as tab:
        await tab.go("/evictions?q=onerror")
        await tab.tab.get_by_text("<img src=x onerror=alert(1)>").first.wait_for()
        assert await tab.tab.locator("main img").count() == 0


async def test_tenant_logs_in_with_a_token_and_sees_no_foreign_name(browser: Any, site: Site, shared: Page) -> None:
    async with tab_of(browser, shared) as tab:
        await tab.go("/gangs")
        await tab.tab.get_by_label("Token").fill(site.token("ours"))
        await tab.tab.get_by_role("button", name="Log in").click()
        await tab.title("Gangs")
        await tab.tab.get_by_role("link", name="impossible").wait_for()
        for view, title in VIEWS.items():
            if view == "/what-if":
                continue
            await tab.go(view)
            await tab.title(title)
            await tab.loaded()
            text = await tab.text()
            for name in SECRETS:
                if name not in view:
                    assert name not in text, (view, name)
        assert await tab.tab.get_by_role("link", name="What if").count() == 0
        tab.refusals_expected = True
        await tab.go("/gangs?ns=hidden-ns")
        await (
            tab.tab.get_by_role("alert")
            .get_by_text("you lack the right to list pods in namespace hidden-ns")
            .wait_for()
        )
        assert "covert-train" not in await tab.text()


async def test_a_wrong_token_is_refused_in_words(browser: Any, shared: Page) -> None:
    async with tab_of(browser, shared) as tab:
        tab.refusals_expected = True
        await tab.go("/")
        await tab.tab.get_by_label("Token").fill("nonsense")
        await tab.tab.get_by_role("button", name="Log in").click()
        await tab.tab.get_by_role("alert").get_by_text("rejects this token").wait_for()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, from npm if that is at hand."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm to fetch axe-core with")
    folder: Path = tmp_path_factory.mktemp("axe")
    done = subprocess.run(
        ["npm", "pack", "axe-core@4.14.1"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        pytest.skip("axe-core cannot be fetched")
    subprocess.run(["tar", "xzf", "axe-core-4.14.1.tgz"], cwd=folder, check=True)
    return (folder / "package" / "axe.min.js").read_text("utf-8")


@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_every_view_is_accessible(browser: Any, page: Page, axe: str, scheme: str) -> None:
    # (The checker writes styles of its own, which the page's policy would stop.)
    async with logged_in(browser, page, color_scheme=scheme, bypass_csp=True, reduced_motion="reduce") as tab:
        for view, title in VIEWS.items():
            await tab.go(view)
            await tab.title(title)
            await tab.loaded()
            await tab.tab.evaluate(axe)
            found = await tab.tab.evaluate(
                "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})"
            )
            told = [
                f"{each['id']}: {each['help']}: {[node['html'][:150] for node in each['nodes'][:3]]}"
                for each in found["violations"]
            ]
            assert told == [], (view, told)
