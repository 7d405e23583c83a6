"""Watches: their start, content and end."""

from __future__ import annotations

from phalanx_local.server import ApiServer, ServerOptions
from tests.clocks import skip_time
from tests.phalanx_local.client import CONFIG_MAPS, NODES, PODS, Client, binding, config_map, node, pod
from tests.phalanx_local.conftest import Starter


def labelled(name: str, **labels: str) -> dict[str, object]:
    body = config_map(name)
    body["metadata"]["labels"] = labels
    return body


async def test_watch_without_a_revision_begins_with_existing_objects(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    async with client.watch(CONFIG_MAPS) as stream:
        assert await stream.event() == ("ADDED", "a")
        await client.create(CONFIG_MAPS, config_map("b"))
        await client.merge(f"{CONFIG_MAPS}/b", {"data": {"k": "v"}})
        await client.ok("DELETE", f"{CONFIG_MAPS}/a")
        assert await stream.event() == ("ADDED", "b")
        assert await stream.event() == ("MODIFIED", "b")
        assert await stream.event() == ("DELETED", "a")


async def test_watch_from_a_revision_replays_missed_events(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    revision = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    await client.create(CONFIG_MAPS, config_map("b"))
    await client.ok("DELETE", f"{CONFIG_MAPS}/a")
    async with client.watch(CONFIG_MAPS, resourceVersion=revision) as stream:
        assert await stream.event() == ("ADDED", "b")
        deleted = await stream.next()
        assert deleted is not None
        assert deleted["type"] == "DELETED"
        assert int(deleted["object"]["metadata"]["resourceVersion"]) == int(revision) + 2
        assert await stream.quiet()


async def test_events_are_whole_objects_with_kind(client: Client) -> None:
    async with client.watch(PODS) as stream:
        made = await client.create(PODS, pod("p"))
        event = await stream.next()
        assert event == {"type": "ADDED", "object": made}


async def test_an_object_that_leaves_the_selection_is_deleted_for_the_watcher(client: Client) -> None:
    await client.create(CONFIG_MAPS, labelled("a", color="red"))
    revision = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    async with client.watch(CONFIG_MAPS, resourceVersion=revision, labelSelector="color=red") as stream:
        painted = await client.merge(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"color": "blue"}}})
        event = await stream.next()
        assert event is not None
        assert event["type"] == "DELETED"
        # the last state that was inside, at the revision of the change that took it out
        assert event["object"]["metadata"]["labels"] == {"color": "red"}
        assert event["object"]["metadata"]["resourceVersion"] == painted["metadata"]["resourceVersion"]
        await client.merge(f"{CONFIG_MAPS}/a", {"data": {"x": "y"}})
        await client.merge(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"color": "red"}}})
        assert await stream.event() == ("ADDED", "a")


async def test_selector_applies_to_missed_events(client: Client) -> None:
    await client.create(CONFIG_MAPS, labelled("a", color="red"))
    revision = (await client.get(CONFIG_MAPS))["metadata"]["resourceVersion"]
    await client.merge(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"color": "blue"}}})
    await client.create(CONFIG_MAPS, labelled("b", color="blue"))
    async with client.watch(CONFIG_MAPS, resourceVersion=revision, labelSelector="color=red") as stream:
        assert await stream.event() == ("DELETED", "a")
        assert await stream.quiet()


async def test_a_finished_pod_leaves_a_scheduler_s_watch(client: Client) -> None:
    await client.create(PODS, pod("p"))
    selector = "status.phase!=Succeeded,status.phase!=Failed"
    async with client.watch("/api/v1/pods", fieldSelector=selector) as stream:
        assert await stream.event() == ("ADDED", "p")
        await client.merge(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})
        assert await stream.event() == ("DELETED", "p")


async def test_a_kubelet_watches_the_pods_of_its_node(client: Client) -> None:
    await client.create(NODES, node("n1"))
    await client.create(NODES, node("n2"))
    async with client.watch("/api/v1/pods", fieldSelector="spec.nodeName=n1") as stream:
        await client.create(PODS, pod("p"))
        await client.create(PODS, pod("other"))
        await client.ok("POST", f"{PODS}/p/binding", binding("p", "n1"))
        await client.ok("POST", f"{PODS}/other/binding", binding("other", "n2"))
        assert await stream.event() == ("ADDED", "p")
        await client.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
        assert await stream.event() == ("DELETED", "p")


async def test_a_watch_of_one_name_sees_only_it(client: Client) -> None:
    async with client.watch(CONFIG_MAPS, fieldSelector="metadata.name=b") as stream:
        await client.create(CONFIG_MAPS, config_map("a"))
        await client.create(CONFIG_MAPS, config_map("b"))
        assert await stream.event() == ("ADDED", "b")
        assert await stream.quiet()


async def test_a_watch_of_one_namespace_sees_only_it(client: Client) -> None:
    async with client.watch("/api/v1/namespaces/kube-public/configmaps") as stream:
        await client.create(CONFIG_MAPS, config_map("a"))
        await client.create("/api/v1/namespaces/kube-public/configmaps", config_map("b"))
        assert await stream.event() == ("ADDED", "b")


async def test_a_forgotten_revision_is_an_error_event_and_the_end(client: Client, server: ApiServer) -> None:
    first = await client.create(CONFIG_MAPS, config_map("a"))
    await client.create(CONFIG_MAPS, config_map("b"))
    server.faults.expire_history()
    async with client.watch(CONFIG_MAPS, resourceVersion=first["metadata"]["resourceVersion"]) as stream:
        assert stream.status == 200
        events = await stream.rest()
    assert [event["type"] for event in events] == ["ERROR"]
    assert events[0]["object"]["code"] == 410
    assert events[0]["object"]["reason"] == "Expired"


async def test_the_history_is_bounded(start: Starter) -> None:
    _, client = await start(ServerOptions(insecure=True, history=3))
    first = await client.create(CONFIG_MAPS, config_map("a"))
    for index in range(4):
        await client.merge(f"{CONFIG_MAPS}/a", {"data": {"n": str(index)}})
    old = first["metadata"]["resourceVersion"]
    async with client.watch(CONFIG_MAPS, resourceVersion=old) as stream:
        assert [event["type"] for event in await stream.rest()] == ["ERROR"]
    recent = str(int(old) + 1)
    async with client.watch(CONFIG_MAPS, resourceVersion=recent) as stream:
        assert [(await stream.event())[0] for _ in range(3)] == ["MODIFIED"] * 3
        await client.create(CONFIG_MAPS, config_map("later"))
        assert await stream.event() == ("ADDED", "later")


async def test_a_revision_of_another_life_is_expired(client: Client) -> None:
    async with client.watch(CONFIG_MAPS, resourceVersion="9" * 18) as stream:
        events = await stream.rest()
    assert events[0]["object"]["code"] == 410


async def test_bookmarks_contain_the_revision_at_the_end(client: Client) -> None:
    await client.create(PODS, pod("p"))
    async with client.watch(PODS, allowWatchBookmarks="true", timeoutSeconds="50") as stream:
        assert await stream.event() == ("ADDED", "p")
        other = await client.create(CONFIG_MAPS, config_map("a"))
        skip_time(50)
        events = await stream.rest()
    assert [event["type"] for event in events] == ["BOOKMARK"]
    bookmark = events[0]["object"]
    assert bookmark["kind"] == "Pod"
    assert bookmark["metadata"] == {"resourceVersion": other["metadata"]["resourceVersion"]}
    assert bookmark["spec"] == {"containers": None}


async def test_bookmarks_come_regularly(start: Starter) -> None:
    _, client = await start(ServerOptions(insecure=True, bookmark_interval=0.01))
    async with client.watch(CONFIG_MAPS, allowWatchBookmarks="true") as stream:
        assert (await stream.event())[0] == "BOOKMARK"
        assert (await stream.event())[0] == "BOOKMARK"


async def test_without_asking_there_are_no_bookmarks(client: Client) -> None:
    async with client.watch(CONFIG_MAPS, timeoutSeconds="50") as stream:
        skip_time(50)
        assert await stream.rest() == []


async def test_a_streaming_list_ends_with_a_marked_bookmark(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    async with client.watch(
        CONFIG_MAPS,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as stream:
        assert await stream.event() == ("ADDED", "a")
        mark = await stream.next()
        assert mark is not None
        assert mark["type"] == "BOOKMARK"
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await client.create(CONFIG_MAPS, config_map("b"))
        assert await stream.event() == ("ADDED", "b")


async def test_initial_events_need_a_revision_match(client: Client) -> None:
    reply = await client.call("GET", CONFIG_MAPS, watch="1", sendInitialEvents="true")
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes == [("resourceVersionMatch", "FieldValueForbidden")]
    reply = await client.call(
        "GET", CONFIG_MAPS, watch="1", resourceVersion="1", resourceVersionMatch="NotOlderThan"
    )
    assert reply.status == 422


async def test_graceful_deletion_is_seen_step_by_step(client: Client) -> None:
    await client.create(NODES, node("n"))
    await client.create(PODS, pod("p"))
    await client.ok("POST", f"{PODS}/p/binding", binding("p", "n"))
    revision = (await client.get(PODS))["metadata"]["resourceVersion"]
    async with client.watch(PODS, resourceVersion=revision) as stream:
        await client.ok("DELETE", f"{PODS}/p")
        dying = await stream.next()
        assert dying is not None
        assert dying["type"] == "MODIFIED"
        assert dying["object"]["metadata"]["deletionGracePeriodSeconds"] == 30
        await client.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
        assert await stream.event() == ("DELETED", "p")


async def test_the_end_of_the_server_ends_watches(start: Starter) -> None:
    server, client = await start(ServerOptions(insecure=True))
    async with client.watch(CONFIG_MAPS) as stream:
        await server.stop()
        assert await stream.rest() == []
