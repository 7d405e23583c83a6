"""A server that has just started says nothing of custom kinds until it has read their definitions: none of them is
gone, and none of their objects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phalanx.kube.core_resources import DEFINITIONS

from .conftest import Site
from .fault import ALWAYS, Fault

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

GROUP = "scheduling.x-k8s.io/v1alpha1"
MINIMUM = "gang.scheduling.koordinator.sh/min-available"
NAME = "gang.scheduling.koordinator.sh/name"


async def custom_groups(site: Site) -> set[str]:
    definitions = await site.world.client.get(DEFINITIONS.path())
    return {each["spec"]["group"] for each in definitions["items"]}


async def quotas_undefined(site: Site) -> dict[str, Any]:
    """Deletes the definition of quotas, and returns it."""
    path = DEFINITIONS.path(name="elasticquotas.scheduling.x-k8s.io")
    definition: dict[str, Any] = await site.world.client.get(path)
    await site.world.client.delete(path)
    return definition


async def define_again(site: Site, definition: dict[str, Any]) -> None:
    metadata = {key: definition["metadata"][key] for key in ("name", "labels")}
    made = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata}
    await site.world.client.create(DEFINITIONS.path(), {**made, "spec": definition["spec"]})


async def scarcity(site: Site) -> None:
    """Create a quota of one CPU, and a gang whose object requires three members where two fit; its pods state
    two.
    """
    world = site.world
    await world.node("n1")
    await world.node("n2", cpu="2")
    quota = {"min": {"cpu": "1"}, "max": {"cpu": "1"}}
    await world.make({"apiVersion": GROUP, "kind": "ElasticQuota", "metadata": {"name": "q"}, "spec": quota})
    await world.make({"apiVersion": GROUP, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 3}})


async def ask(site: Site) -> None:
    world = site.world
    await world.pods("a", "b", cpu="1")
    members = {"annotations": {NAME: "g", MINIMUM: "2"}}
    await world.pods("g-0", "g-1", "g-2", cpu="1", **members)


async def check(site: Site) -> None:
    world = site.world
    placed = await world.placement()
    assert sum(bool(node) for name, node in placed.items() if not name.startswith("g-")) == 1, placed
    assert not any(node for name, node in placed.items() if name.startswith("g-")), placed


async def test_a_server_that_restarts_takes_no_kind_away(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # (Else so little time passes here that the difference would not show.)
    monkeypatch.setattr("phalanx.daemon.custom_kinds._GONE_AFTER", 1.0)
    world = site.world
    await scarcity(site)
    scheduler = await world.scheduler()
    await ask(site)
    await world.until_bound("a")
    with site.proxy.beginning(await custom_groups(site)):
        scheduler.service.observer.kinds.rediscover()
        for number in range(12):
            await world.pods(f"more-{number}", cpu="1")
            await asyncio.sleep(0.3)
        await check(site)
    await world.pods("last", cpu="1")
    await world.settled(scheduler, quiet=2.0)
    await check(site)


async def test_scheduler_started_beside_the_server_waits_for_defined_kinds(site: Site) -> None:
    world = site.world
    await scarcity(site)
    await ask(site)
    slow = Fault("list", "customresourcedefinitions", latency=1.0)
    site.proxy.add(slow)
    with site.proxy.beginning(await custom_groups(site)):
        scheduler = await world.scheduler(wait=False)
        await asyncio.sleep(4)
        assert not any((await world.placement()).values())
    await world.until_bound("a")
    assert slow.struck == 1
    await world.settled(scheduler, quiet=1.0)
    await check(site)


async def test_kind_whose_definition_is_deleted_disappears(site: Site) -> None:
    world = site.world
    await scarcity(site)
    scheduler = await world.scheduler()
    await ask(site)
    await world.until_bound("a")
    definition = await quotas_undefined(site)
    try:
        await world.until_bound("a", "b")
    finally:
        await define_again(site, definition)
    await world.settled(scheduler)


async def test_nothing_is_planned_between_the_coming_of_a_kind_and_its_first_list(site: Site) -> None:
    world = site.world
    definition = await quotas_undefined(site)
    await world.node("n1")
    scheduler = await world.scheduler()
    slow = Fault("list", "elasticquotas", latency=2.0)
    site.proxy.add(slow)
    await define_again(site, definition)
    quota = {"min": {"cpu": "1"}, "max": {"cpu": "1"}}

    async def asked() -> bool:
        return slow.struck > 0

    await world.until(asked, "the list is asked for")
    await world.make({"apiVersion": GROUP, "kind": "ElasticQuota", "metadata": {"name": "q"}, "spec": quota})
    await world.pods("a", "b", cpu="1")
    await world.until_bound("a")
    await world.settled(scheduler, quiet=1.0)
    assert sum(map(bool, (await world.placement()).values())) == 1


async def test_kind_that_the_server_cannot_list_delays_no_other_kind(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("phalanx.daemon.custom_kinds._LIST_PATIENCE", 1.0)
    world = site.world
    site.proxy.add(Fault("list", "hypernodes", times=ALWAYS, status=500))
    await world.node("n1")
    await world.pods("a", cpu="1")
    await world.scheduler()
    await world.until_bound("a")
    assert "hypernodes.topology.volcano.sh cannot be listed: scheduling continues without it: 500" in caplog.text


async def test_no_pod_is_bound_before_existing_quotas_are_known(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("phalanx.daemon.custom_kinds._LIST_PATIENCE", 1.0)
    world = site.world
    site.proxy.add(Fault("list", "elasticquotas", times=ALWAYS, status=500))
    await scarcity(site)
    await ask(site)
    scheduler = await world.scheduler(wait=False)
    await asyncio.sleep(4)
    assert not any((await world.placement()).values())
    assert caplog.text.count("scheduling waits for it: the kind sets quota limits: 500") == 1
    site.proxy.heal()
    await world.until_bound("a")
    await world.settled(scheduler, quiet=1.0)
    await check(site)
