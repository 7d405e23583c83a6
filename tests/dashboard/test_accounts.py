"""Shares over weeks: viewers of a queue get its accounting, or the message that there is none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from phalanx.accounting.database import Database
from phalanx.accounting.facts import PodFact, PodOutcome
from phalanx.accounting.queue_days import read_queue_days
from phalanx.accounting.recorder import GangChange, Recorder
from phalanx.accounting.records import Clock
from phalanx.accounting.sums import DAY
from phalanx.model.gang import GangKey
from tests.accounting.world import T0, a_pod
from tests.dashboard.cluster import Page, Site

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]
HOUR = 3600


def recorded(file: Path, *pods: PodFact, now: int) -> Database:
    database = Database(str(file))
    database.upgrade()
    changes = [GangChange(GangKey(pod.namespace, pod.gang), None, [pod]) for pod in pods]
    Recorder(database).record(changes, Clock(now, True))
    return database


async def test_days_are_exact_across_midnight_and_for_running_jobs(tmp_path: Path) -> None:
    over = a_pod("over", "a", queue="red", bound=T0 + 22 * HOUR, ended=T0 + 25 * HOUR, outcome=PodOutcome.SUCCEEDED)
    runs = a_pod("runs", "b", queue="blue", bound=T0 + DAY)
    database = recorded(tmp_path / "accounts.db", over, runs, now=T0 + DAY + 6 * HOUR)
    with database.reading() as connection:
        found = read_queue_days(connection, T0 // DAY, 2, T0 + DAY + 6 * HOUR)
        later = read_queue_days(connection, T0 // DAY + 1, 1, T0 + DAY + 6 * HOUR)
    database.close()
    assert found["cpu"] == {
        "red": [2 * HOUR * 1000, HOUR * 1000],
        "blue": [0, 6 * HOUR * 1000],
    }
    assert later["cpu"] == {"red": [HOUR * 1000], "blue": [6 * HOUR * 1000]}


async def test_page_shows_the_average_usage_of_each_queue(site: Site, tmp_path: Path) -> None:
    now = int(time.time())
    yesterday = now - now % DAY - DAY
    ended = {"ended": yesterday + 12 * HOUR, "outcome": PodOutcome.SUCCEEDED}
    pods = [
        a_pod(f"p-{queue}", f"g-{queue}", queue=queue, created=yesterday, bound=yesterday, **ended)
        for queue in ("our-queue", "covert-queue")
    ]
    database = recorded(tmp_path / "accounts.db", *pods, now=now)
    try:
        async with site.dashboard(rehearsed=False, database=database) as page:
            told = await page.json("accounts?days=14")
            status, body = await page.ask("/api/v1/accounts?days=15")
            assert (status, b"14, 30, 90" in body) == (400, True)
        assert (told["state"], len(told["times"]), told["times"][-2]) == ("there", 14, yesterday)
        assert told["held"]["cpu"]["our-queue"][-2] == 500
        assert told["total"]["cpu"][-2] == 1000
        async with site.dashboard("token", rehearsed=False, database=database) as page:
            ours = await page.json("accounts?days=14&namespace=ours", token=site.token("ours"))
        assert "covert-queue" not in ours["held"]["cpu"]
    finally:
        database.close()


async def test_a_page_without_accounts_says_so_and_one_that_cannot_read_them_too(
    site: Site, page: Page, tmp_path: Path
) -> None:
    told = await page.json("accounts")
    assert (told["state"], told["held"]) == ("none", {})
    assert "--database" in told["message"]
    missing = Database(str(tmp_path / "nothing.db"))
    async with site.dashboard(rehearsed=False, database=missing) as other:
        told = await other.json("accounts")
    missing.close()
    assert told["state"] == "away"
    assert "nothing.db" not in told["message"]
