"""Lists: selectors, pages, and the meaning of resourceVersion."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx_local.server import ApiServer
from tests.phalanx_local.client import CONFIG_MAPS, NODES, PODS, Client, Reply, binding, config_map, node, pod


async def _go_on(client: Client, token: str) -> Reply:
    query: dict[str, Any] = {"continue": token, "limit": "5"}
    return await client.call("GET", CONFIG_MAPS, **query)


async def _maps(client: Client, *names: str) -> None:
    for name in names:
        await client.create(CONFIG_MAPS, config_map(name))


async def test_items_of_built_in_kinds_carry_no_kind(client: Client) -> None:
    await _maps(client, "b", "a")
    found = await client.get(CONFIG_MAPS)
    assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
    assert [item["metadata"]["name"] for item in found["items"]] == ["a", "b"]
    assert all("kind" not in item and "apiVersion" not in item for item in found["items"])


async def test_the_list_carries_the_revision_to_watch_from(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a"))
    found = await client.get("/api/v1/configmaps")
    assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=web", ["a", "b"]),
        ("app==web,tier=front", ["a"]),
        ("app!=web", ["c", "d"]),
        ("app in (web,db)", ["a", "b", "c"]),
        ("app notin (web, db)", ["d"]),
        ("tier", ["a", "c"]),
        ("!tier", ["b", "d"]),
        ("rank>2", ["b"]),
        ("rank<2", ["a"]),
        ("app in (web),!tier", ["b"]),
        ("empty=", ["d"]),
    ],
)
async def test_label_selectors(client: Client, selector: str, names: list[str]) -> None:
    labels = {
        "a": {"app": "web", "tier": "front", "rank": "1"},
        "b": {"app": "web", "rank": "3"},
        "c": {"app": "db", "tier": "back"},
        "d": {"empty": ""},
    }
    for name, labelled in labels.items():
        body = config_map(name)
        body["metadata"]["labels"] = labelled
        await client.create(CONFIG_MAPS, body)
    assert await client.names(CONFIG_MAPS, labelSelector=selector) == names


@pytest.mark.parametrize("selector", ["a=b,", "in (a)", "a in b", "a in (b", "=b", "a=b c", "a=!"])
async def test_a_malformed_label_selector_is_a_bad_request(client: Client, selector: str) -> None:
    reply = await client.call("GET", PODS, labelSelector=selector)
    assert (reply.status, reply.reason) == (400, "BadRequest")


async def test_field_selectors_of_pods(client: Client) -> None:
    await client.create(NODES, node("n"))
    await client.create(PODS, pod("a", schedulerName="phalanx"))
    await client.create(PODS, pod("b", restartPolicy="Never"))
    await client.ok("POST", f"{PODS}/b/binding", binding("b", "n"))
    await client.merge(f"{PODS}/b/status", {"status": {"phase": "Running", "podIP": "10.0.0.1"}})
    for selector, names in {
        "spec.nodeName=": ["a"],
        "spec.nodeName=n": ["b"],
        "spec.schedulerName=phalanx": ["a"],
        "status.phase!=Running": ["a"],
        "status.phase!=Succeeded,status.phase!=Failed": ["a", "b"],
        "status.podIP=10.0.0.1": ["b"],
        "spec.restartPolicy=Never": ["b"],
        "spec.serviceAccountName=default": ["a", "b"],
        "metadata.name=a": ["a"],
        "metadata.name=a,metadata.namespace=kube-system": [],
    }.items():
        assert await client.names("/api/v1/pods", fieldSelector=selector) == names, selector


async def test_an_unknown_field_is_a_bad_request(client: Client) -> None:
    reply = await client.call("GET", PODS, fieldSelector="spec.color=red")
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert reply.body["message"] == "field label not supported: spec.color"
    assert (await client.call("GET", CONFIG_MAPS, fieldSelector="spec.nodeName=n")).status == 400


async def test_pages_show_the_revision_of_the_first(client: Client) -> None:
    await _maps(client, "a", "b", "c", "d", "e")
    first = await client.get(CONFIG_MAPS, limit="2")
    assert [item["metadata"]["name"] for item in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3

    await client.ok("DELETE", f"{CONFIG_MAPS}/c")
    await client.create(CONFIG_MAPS, config_map("dd"))
    second = await client.get(CONFIG_MAPS, limit="2", **{"continue": first["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in second["items"]] == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]

    last = await client.get(CONFIG_MAPS, limit="2", **{"continue": second["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in last["items"]] == ["e"]
    assert "continue" not in last["metadata"]


async def test_pages_with_a_selector_do_not_count_the_rest(client: Client) -> None:
    await _maps(client, "a", "b", "c")
    page = await client.get(CONFIG_MAPS, limit="1", fieldSelector="metadata.name!=b")
    assert "remainingItemCount" not in page["metadata"]
    rest = await client.get(
        CONFIG_MAPS,
        limit="5",
        fieldSelector="metadata.name!=b",
        **{"continue": page["metadata"]["continue"]},
    )
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c"]


async def test_answer_to_an_expired_token_contains_a_new_one(client: Client, server: ApiServer) -> None:
    await _maps(client, "a", "b", "c")
    page = await client.get(CONFIG_MAPS, limit="1")
    await client.create(CONFIG_MAPS, config_map("d"))
    server.faults.expire_history()
    reply = await _go_on(client, page["metadata"]["continue"])
    assert (reply.status, reply.reason) == (410, "Expired")
    rest = await _go_on(client, reply.body["metadata"]["continue"])
    assert [item["metadata"]["name"] for item in rest.body["items"]] == ["b", "c", "d"]


async def test_a_broken_token_is_a_bad_request(client: Client) -> None:
    assert (await _go_on(client, "!!")).status == 400


async def test_a_list_at_an_exact_revision_shows_the_past(client: Client) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", key="1"))
    revision = made["metadata"]["resourceVersion"]
    await client.merge(f"{CONFIG_MAPS}/a", {"data": {"key": "2"}})
    await client.create(CONFIG_MAPS, config_map("b"))
    past = await client.get(CONFIG_MAPS, resourceVersion=revision, resourceVersionMatch="Exact")
    assert past["metadata"]["resourceVersion"] == revision
    assert [item["data"] for item in past["items"]] == [{"key": "1"}]
    now = await client.get(CONFIG_MAPS, resourceVersion=revision, resourceVersionMatch="NotOlderThan")
    assert len(now["items"]) == 2


async def test_a_revision_to_come_is_too_large(client: Client) -> None:
    reply = await client.call("GET", CONFIG_MAPS, resourceVersion="9" * 18)
    assert (reply.status, reply.reason) == (504, "Timeout")
    assert ("", "ResourceVersionTooLarge") in reply.causes


async def test_a_forgotten_revision_is_expired(client: Client, server: ApiServer) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a"))
    await client.create(CONFIG_MAPS, config_map("b"))
    server.faults.expire_history()
    reply = await client.call(
        "GET",
        CONFIG_MAPS,
        resourceVersion=made["metadata"]["resourceVersion"],
        resourceVersionMatch="Exact",
    )
    assert (reply.status, reply.reason) == (410, "Expired")


async def test_revision_zero_ignores_the_limit(client: Client) -> None:
    await _maps(client, "a", "b", "c")
    assert len((await client.get(CONFIG_MAPS, limit="1", resourceVersion="0"))["items"]) == 3


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"resourceVersionMatch": "Exact"}, "FieldValueForbidden"),
        ({"resourceVersion": "1", "resourceVersionMatch": "Nearly"}, "FieldValueNotSupported"),
        ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, "FieldValueForbidden"),
    ],
)
async def test_contradictory_list_options_are_invalid(client: Client, query: dict[str, Any], reason: str) -> None:
    reply = await client.call("GET", PODS, **query)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.body["details"]["kind"] == "ListOptions"
    assert reply.causes == [("resourceVersionMatch", reason)]


@pytest.mark.parametrize("query", [{"resourceVersion": "abc"}, {"limit": "many"}])
async def test_malformed_list_options_are_bad_requests(client: Client, query: dict[str, Any]) -> None:
    assert (await client.call("GET", PODS, **query)).status == 400
