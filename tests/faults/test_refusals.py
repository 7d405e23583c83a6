"""A server that has just started refuses every request for a second, until it has loaded its rules."""

from __future__ import annotations

import pytest

from .conftest import Site
from .fault import Fault

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

QUOTA = "scheduling.x-k8s.io/v1alpha1"


async def test_quota_refused_at_the_start_is_not_exceeded(site: Site) -> None:
    world = site.world
    await world.node("n1")
    await world.make(
        {
            "apiVersion": QUOTA,
            "kind": "ElasticQuota",
            "metadata": {"name": "q"},
            "spec": {"min": {"cpu": "1"}, "max": {"cpu": "1"}},
        }
    )
    refused = Fault("list", "elasticquotas", times=4, status=403)
    site.proxy.add(refused)
    await world.pods("a", "b", cpu="1")
    scheduler = await world.scheduler()
    await world.until_bound("a")
    await world.settled(scheduler, quiet=1.0)
    assert refused.struck == 4
    assert await world.placement() == {"a": "n1", "b": ""}


async def test_single_refusal_of_a_watch_delays_no_pod_for_long(site: Site) -> None:
    world = site.world
    await world.node("n1")
    refused = Fault("watch", "nodes", status=403)
    site.proxy.add(refused)
    await world.scheduler(wait=False)
    await world.pods("a", cpu="1")
    await world.until_bound("a", seconds=10)
    assert refused.struck == 1
