"""Runs and usage of a tenant's own namespace come from the page's server, and nothing of other namespaces."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from phalanx.accounting.facts import PodOutcome
from phalanx.kube.auth.config import SERVER_EXTENSION, with_extension
from tests.accounting.world import a_pod
from tests.dashboard.cluster import Page, Site
from tests.dashboard.test_accounts import recorded
from tests.dashboard.test_command_answers import Tenant, assert_hides, invoke, publish
from tests.dashboard.test_command_imports import check, modules_of

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]


@pytest_asyncio.fixture(loop_scope="session")
async def page(site: Site, tmp_path: Path) -> AsyncIterator[Page]:
    """A published page over a database with one run of `ours` and one of the hidden namespace."""
    now = int(time.time())
    begun = {"created": now - 100, "bound": now - 60, "ended": now - 10, "outcome": PodOutcome.SUCCEEDED}
    pods = (
        a_pod("o1", gang="train", namespace="ours", queue="default", user="ada", **begun),
        a_pod("h1", gang="covert-train", namespace="hidden-ns", queue="covert-queue", user="eve", **begun),
    )
    database = recorded(tmp_path / "accounts.db", *pods, now=now)
    try:
        async with site.dashboard("token", database=database) as page:
            await publish(site, page.url)
            yield page
    finally:
        database.close()


async def test_history_of_a_tenant_has_the_runs_of_its_namespace(site: Site, page: Page, tmp_path: Path) -> None:
    tenant, home = Tenant(site, "ours"), str(tmp_path)
    for words in (("history",), ("history", "-n", "ours"), ("history", "-A", "-u", "ada", "-s", "CD")):
        output = await tenant.run(*words, HOME=home)
        assert "train" in output
        assert "COMPLETED" in output
        assert_hides(output)
    assert "not shown: usage of other namespaces than ours" in await tenant.run("history", HOME=home)
    assert "No runs" in await tenant.run("history", "-n", "ours", "-u", "eve", HOME=home)
    assert "lack the right to list pods" in await tenant.run("history", "-n", "hidden-ns", code=1, HOME=home)


async def test_report_of_a_tenant_has_the_usage_of_its_namespace(site: Site, page: Page, tmp_path: Path) -> None:
    tenant = Tenant(site, "ours")
    output = await tenant.run("report", "--by", "namespace,user", "--from", "now-1days", HOME=str(tmp_path))
    assert "ours" in output
    assert "ada" in output
    assert "eve" not in output
    assert_hides(output)


async def test_administrator_whose_kubeconfig_names_the_server_needs_no_database_library(
    site: Site, page: Page
) -> None:
    file = site.directory / "named-usage-server.kubeconfig"
    file.write_text(json.dumps(with_extension(site.server.kubeconfig(), SERVER_EXTENSION, {"url": page.url})))
    for words in (("history",), ("report", "--from", "now-1days")):
        check(await modules_of(file, *words), 90)


async def test_history_without_database_and_server_names_both_ways(
    site: Site, shared: Page, tmp_path: Path
) -> None:
    await publish(site, shared.url)
    output = (await invoke(Tenant(site, "ours").file, "history", code=1, HOME=str(tmp_path))).output
    assert "this server has no accounting database" in output
    assert "phalanx dashboard with --database" in output


async def test_usage_questions_with_strange_values_are_refused(site: Site, page: Page) -> None:
    headers = {"Authorization": f"Bearer {site.token('ours')}"}
    history: dict[str, Any] = {"since": 0, "until": 1}
    strange: tuple[tuple[str, Any], ...] = (
        ("history", {}),
        ("history", {"since": 5, "until": 1}),
        ("history", {"since": 0, "until": 2**60}),
        ("history", history | {"users": ["x"] * 2000}),
        ("report", history | {"by": ["node"]}),
        ("report", []),
    )
    async with aiohttp.ClientSession(headers=headers) as session:
        for path, question in strange:
            async with session.post(f"{page.url}/api/v1/commands/{path}?own=ours", json=question) as answer:
                assert answer.status == 400, (path, question, await answer.text())
        foreign = history | {"until": 2**39, "namespace": "hidden-ns"}
        async with session.post(f"{page.url}/api/v1/commands/history?own=ours", json=foreign) as answer:
            assert_hides(await answer.text())
