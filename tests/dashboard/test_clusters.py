"""The page at a hub: clusters of gangs, and the rights to see them."""

from __future__ import annotations

import pytest

from phalanx.kube.client import PatchType
from tests.dashboard.cluster import Page, Site, until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]


async def test_clusters_show_reachability_and_content(page: Page) -> None:
    rows = await page.rows("clusters")
    assert (rows["west"]["active"], rows["west"]["cost"], rows["west"]["gangs"]) == ("True", 2, {"Granted": 1})
    assert (rows["east"]["active"], rows["east"]["state"], rows["east"]["reason"]) == ("False", "Drain", "Silent")
    assert (rows["west"]["nodes"], rows["west"]["ready"], rows["west"]["version"]) == (10, 9, "v1.36.2")
    assert (rows["west"]["used"]["cpu"], rows["west"]["offered"]["cpu"]) == ("12500m", "80")
    assert rows["east"]["unknown"] == 1
    assert "unknown" not in rows["west"]


async def test_gang_shows_its_cluster_and_the_answer_of_every_cluster(page: Page) -> None:
    rows = {row["name"]: row["dispatch"] for row in (await page.rows("dispatches")).values()}
    train = rows["train"]
    assert (train["phase"], train["cluster"], train["epoch"]) == ("Granted", "west", 2)
    assert [(each["cluster"], each["start"]) for each in train["answers"]] == [
        ("west", "2026-01-02T03:09:00Z"),
        ("east", ""),
    ]
    assert train["attempts"][0]["outcome"] == "Lost"
    assert "phalanx.dev/clusters" in rows["parked"]["change"]
    assert train["change"] == ""


async def test_tenant_sees_clusters_of_own_gangs_and_no_numbers_of_further_clusters(
    site: Site, shared: Page
) -> None:
    ours = site.token("ours")
    assert (await shared.json("session", token=ours))["hub"] is True
    rows = await shared.rows("dispatches", token=ours)
    assert {(row["namespace"], row["name"]) for row in rows.values()} == {("ours", "train"), ("ours", "parked")}
    status, body = await shared.ask("/api/v1/tables/clusters", token=ours)
    assert status == 200
    assert b"west" not in body
    assert b"you lack the right to list memberclusters" in body


async def test_changed_clusters_are_counted_again(site: Site, page: Page) -> None:
    table = page.served.watch.tables["clusters"]
    await site.dispatch("ours", "mover", {"phase": "Copying", "epoch": 1, "cluster": "west"})
    await until(lambda: b'"Copying":1' in (table.get("west") or b""), "a gang that is sent")
    path = "/apis/phalanx.dev/v1alpha1/namespaces/ours/dispatches/mover-uidmover"
    await site.client.patch(f"{path}/status", {"status": {"phase": "Ended"}}, PatchType.MERGE)
    await until(lambda: b"Copying" not in (table.get("west") or b"Copying"), "its end")
    await site.client.delete(path)
    await until(lambda: "ours/mover-uidmover" not in page.served.watch.tables["dispatches"], "its going")
    assert (await page.rows("clusters"))["west"]["gangs"] == {"Granted": 1}
