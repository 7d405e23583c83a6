"""A gang is sent whole to one member cluster, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from phalanx.kube.core_resources import PODS as PODS_RESOURCE
from tests.hub.federation import GROUPS, NAMESPACE, Federation, federation, until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio]

PODS = ("train-0", "train-1")


@pytest_asyncio.fixture
async def three(tmp_path: Path) -> AsyncIterator[Federation]:
    async with federation(tmp_path) as made:
        for name in made.members:
            await made.join(name)
        yield made


@pytest_asyncio.fixture
async def one(tmp_path: Path) -> AsyncIterator[Federation]:
    async with federation(tmp_path, members=("east",)) as made:
        await made.join("east")
        yield made


async def test_gang_is_sent_to_the_cluster_with_the_earliest_start_and_its_end_is_published_at_the_hub(
    three: Federation,
) -> None:
    await three.members["north"].node("n1", "8")
    await three.start_hub()
    await three.gang()
    await three.until_bound("north", *PODS)
    record = await three.record()
    assert (record["phase"], record["cluster"], record["epoch"]) == ("Granted", "north", 1)
    await three.members["north"].phase("Running", *PODS)
    await three.until_phase("Running", *PODS)
    await three.members["north"].phase("Succeeded", *PODS)
    await three.until_phase("Succeeded", *PODS)
    assert (await three.until_record(phase="Ended"))["succeeded"] == 2
    await three.delete_gang()
    await three.until_empty("north")
    await three.until_forgotten()


async def test_gang_that_cannot_be_dispatched_is_refused_by_name(one: Federation) -> None:
    await one.start_hub()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "uid": "j"}
    await one.pod("alone", "", ownerReferences=[owner])

    async def told() -> str:
        conditions = (await one.hub.pods())["alone"]["status"].get("conditions") or ()
        return next((each["message"] for each in conditions if each["type"] == "phalanx.dev/Dispatched"), "")

    said = await until(told, "the pod says that it is not dispatched")
    assert said.startswith(
        "pods of a Job without a PodGroup are not dispatched; name one of scheduling.x-k8s.io or"
    )


async def test_gang_is_not_sent_where_a_foreign_pod_has_the_name_of_a_copy(one: Federation) -> None:
    await one.members["east"].node("n1", "8")
    foreign = {"metadata": {"name": "train-1"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    await one.members["east"].client.create(PODS_RESOURCE.path(NAMESPACE), foreign)
    await one.start_hub()
    await one.gang("train", 2, "1", clusters="east")
    said = (await one.until_record(phase="Pending", reason="NoCluster"))["message"]
    assert said == "east: Pod ml/train-1 already exists, and is not the hub's"


@pytest.mark.slow
async def test_foreign_object_with_the_name_of_a_copy_is_not_changed(three: Federation) -> None:
    for site in three.members.values():
        await site.node("n1", "8")
    kind = {"apiVersion": GROUPS.api_version, "kind": "PodGroup"}
    foreign = {**kind, "metadata": {"name": "train"}, "spec": {"minMember": 7}}
    there = await three.members["east"].client.create(GROUPS.path(NAMESPACE), foreign)
    await three.start_hub()
    await three.gang("train", 2, "1", clusters="east")

    async def refused() -> str:
        attempts = (await three.record()).get("attempts") or [{}]
        return str(attempts[0].get("message") or "")

    assert "PodGroup ml/train already exists, and is not the hub's" in await until(refused, "east refuses it")
    await three.annotate("train", clusters=None)
    assert (await three.until_record(phase="Granted"))["cluster"] in ("north", "west")
    await three.until_empty("east")
    left = await three.members["east"].client.get(GROUPS.path(NAMESPACE, "train"))
    assert left["metadata"]["uid"] == there["metadata"]["uid"]
