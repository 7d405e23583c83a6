"""Faults on demand: failures that a client must survive, made reproducible."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from phalanx_local.server import ApiServer
from tests.phalanx_local.client import CONFIG_MAPS, NODES, PODS, Client, binding, config_map, node, pod


async def test_an_answer_in_place_of_the_real_one(client: Client, server: ApiServer) -> None:
    server.faults.answer("POST", r"/configmaps$", 429, times=2, retry_after=3)
    for _ in range(2):
        reply = await client.call("POST", CONFIG_MAPS, config_map("a"))
        assert (reply.status, reply.reason) == (429, "TooManyRequests")
        assert reply.headers["Retry-After"] == "3"
        assert reply.body["details"]["retryAfterSeconds"] == 3
    assert (await client.call("POST", CONFIG_MAPS, config_map("a"))).status == 201


async def test_other_requests_are_not_touched(client: Client, server: ApiServer) -> None:
    rule = server.faults.answer("DELETE", r"/pods/", 500)
    await client.create(PODS, pod("p"))
    await client.get(f"{PODS}/p")
    assert rule.seen == 0
    assert (await client.call("DELETE", f"{PODS}/p")).status == 500
    assert rule.seen == 1
    assert (await client.call("DELETE", f"{PODS}/p")).status == 200


async def test_an_error_after_the_write_took_effect(client: Client, server: ApiServer) -> None:
    await client.create(NODES, node("n"))
    await client.create(PODS, pod("p"))
    server.faults.answer("POST", "/binding$", 504, after_write=True)
    assert (await client.call("POST", f"{PODS}/p/binding", binding("p", "n"))).status == 504
    assert (await client.get(f"{PODS}/p"))["spec"]["nodeName"] == "n"


@pytest.mark.parametrize("after", [False, True])
async def test_a_dropped_connection(client: Client, server: ApiServer, after: bool) -> None:
    server.faults.drop("POST", "/configmaps$", after_write=after)
    with pytest.raises(aiohttp.ClientError):
        await client.call("POST", CONFIG_MAPS, config_map("a"))
    assert await client.names(CONFIG_MAPS) == (["a"] if after else [])


async def test_a_delay(client: Client, server: ApiServer) -> None:
    server.faults.delay("GET", "/configmaps$", 30)
    slow = asyncio.create_task(client.call("GET", CONFIG_MAPS))
    assert (await client.call("GET", PODS)).status == 200
    assert not slow.done()
    slow.cancel()


async def test_cut_watches_end_and_may_say_that_they_expired(client: Client, server: ApiServer) -> None:
    async with client.watch(PODS) as pods, client.watch(CONFIG_MAPS) as maps:
        assert server.faults.cut_watches(r"/pods$") == 1
        assert await pods.rest() == []
        assert server.faults.cut_watches(expired=True) == 1
        events = await maps.rest()
        assert [(event["type"], event["object"]["code"]) for event in events] == [("ERROR", 410)]


async def test_rules_can_be_withdrawn(client: Client, server: ApiServer) -> None:
    server.faults.answer("*", "", 503, times=1000)
    assert (await client.call("GET", PODS)).status == 503
    server.faults.clear()
    assert (await client.call("GET", PODS)).status == 200
