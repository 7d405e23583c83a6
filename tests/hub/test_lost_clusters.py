"""Clusters that are cut off, die, come back from a backup, or refuse the hub: never two running copies under
Wait."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from phalanx.daemon import hub_lease
from tests.hub.federation import Federation, federation, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio]

PODS = ("train-0", "train-1")


@pytest_asyncio.fixture
async def three(tmp_path: Path) -> AsyncIterator[Federation]:
    """East is the cheapest, so that gangs go there as long as they can; each has room for one."""
    async with federation(tmp_path) as made:
        for cost, (name, site) in enumerate(made.members.items()):
            await site.node("n1", "2")
            await made.join(name, cost=cost)
        await made.start_hub(patience=2)
        # Or a gang might be sent before the cheapest cluster has answered.
        for name in made.members:
            await made.until_member(name, "True")
        yield made


async def running_in_east(three: Federation, **annotations: str) -> None:
    await three.gang("train", 2, "1", **annotations)
    await three.until_bound("east", *PODS)
    await three.members["east"].phase("Running", *PODS)
    await three.until_phase("Running", *PODS)


async def test_under_wait_nothing_moves_while_the_cluster_is_cut_off(three: Federation) -> None:
    await running_in_east(three)
    three.net.cut.add(three.members["east"].server.url)
    told = await three.until_record(reason="Unknown")
    assert "the state of its pods is unknown" in told["message"]
    await three.until_member("east", "Unknown", "Unreachable")
    # The hub forgets nothing of it when it starts again.
    await three.kill_hub()
    await three.start_hub(patience=2)
    await three.gang("other")
    await three.until_bound("north", "other-0", "other-1")
    assert await three.startable() == {"train": {"east"}, "other": {"north"}}
    # Its end is published when the cluster is reachable again.
    await three.members["east"].phase("Succeeded", *PODS)
    three.net.cut.clear()
    await three.until_phase("Succeeded", *PODS)
    assert (await three.until_record(phase="Ended"))["epoch"] == 1


async def test_rerun_sends_the_gang_elsewhere_and_deletes_the_old_copies(three: Federation) -> None:
    await running_in_east(three, when_lost="Rerun", rerun_after="1s")
    three.net.cut.add(three.members["east"].server.url)
    await three.until_bound("north", *PODS)
    record = await three.record()
    assert (record["cluster"], record["epoch"]) == ("north", 2)
    assert record["attempts"][0]["outcome"] == "Lost"
    three.net.cut.clear()
    await three.until_empty("east")
    await three.members["north"].phase("Succeeded", *PODS)
    await three.until_record(phase="Ended", cluster="north")


async def test_a_cluster_that_refuses_us_is_not_lost(three: Federation) -> None:
    await running_in_east(three, when_lost="Rerun", rerun_after="1s")
    config = three.members["east"].server.kubeconfig()
    revoked = {**config, "users": [{**config["users"][0], "user": {"token": "revoked"}}]}
    await three.secret("east", json.dumps(revoked))
    await three.until_member("east", "False", "Unauthorized")
    await three.gang("other")
    await three.until_bound("north", "other-0", "other-1")
    assert (await three.record())["cluster"] == "east"
    await three.secret("east", json.dumps(config))
    await three.until_member("east", "True")
    await three.members["east"].phase("Succeeded", *PODS)
    await three.until_record(phase="Ended", epoch=1)


async def test_a_deletion_and_a_suspension_reach_a_cluster_that_was_away(three: Federation) -> None:
    await running_in_east(three)
    await three.gang("other")
    await three.until_bound("north", "other-0", "other-1")
    for name in ("east", "north"):
        three.net.cut.add(three.members[name].server.url)
    await three.delete_gang()
    await three.annotate("other", suspend="true")
    await three.until_record(phase="Withdrawing")
    await three.until_record("other", phase="Withdrawing")
    await three.kill_hub()
    for name in ("east", "north"):
        await three.members[name].stop()
        await three.members[name].start()
        await three.members[name].start_scheduler()
    await three.start_hub(patience=2)
    three.net.cut.clear()
    await three.until_empty("east")
    await three.until_forgotten()
    await three.until_record("other", phase="Pending")
    await three.until_empty("north")
    await three.annotate("other", suspend=None)
    await three.until_bound("east", "other-0", "other-1")


async def test_copies_restored_from_a_backup_are_deleted_before_they_start(three: Federation) -> None:
    """The backup is of the worst moment: the gates were lifted, and nothing had started yet."""
    east = three.members["east"]
    await east.end_scheduler()
    await three.gang()
    await three.until_record(phase="Granted", cluster="east")

    async def lifted() -> bool:
        return (await three.startable()).get("train") == {"east"}

    await until(lifted, "the gates are lifted")
    backup = east.backup()
    await three.annotate("train", suspend="true", clusters="north")
    await three.until_record(phase="Pending")
    await three.annotate("train", suspend=None)
    await three.until_bound("north", *PODS)
    await three.members["north"].phase("Running", *PODS)
    # The hub is down while the cluster returns with its scheduler: only the lease holds the copies.
    await three.kill_hub()
    await east.restore(backup)
    await east.start_scheduler()
    assert set(await east.pods()) == set(PODS)

    async def said() -> bool:
        pods = await east.pods()
        conditions = [each for pod in pods.values() for each in pod["status"].get("conditions") or ()]
        return any("lease" in each.get("message", "") for each in conditions)

    await until(said, "the scheduler says that it waits for the hub's lease")
    assert not any(pod["spec"].get("nodeName") for pod in (await east.pods()).values())
    assert east.scheduler is not None
    binds = east.scheduler.wire
    await three.start_hub(patience=2)
    await three.until_empty("east")
    assert not [write for write in binds.writes if write.endswith("/binding")]
    assert (await three.record())["cluster"] == "north"


async def test_under_stop_the_cluster_ends_it_when_the_hub_is_lost(
    three: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running_in_east(three, when_lost="Stop")
    await three.gang("stays")
    await three.until_bound("north", "stays-0", "stays-1")
    # (Not before: on a busy machine the lease might be renewed too late for that.)
    monkeypatch.setattr(hub_lease, "LEASE_SECONDS", 3)
    three.net.cut.update(site.server.url for site in three.members.values())

    async def told_to_end() -> bool:
        pods = (await three.members["east"].pods()).values()
        return all(pod["metadata"].get("deletionTimestamp") for pod in pods)

    await until(told_to_end, "the copies in east are told to end")
    pods = (await three.members["north"].pods()).values()
    assert not any(pod["metadata"].get("deletionTimestamp") for pod in pods)
