"""Answers to the page follow the schema, and equal those of `phalanx why` and `phalanx queue`."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from phalanx.cli.main import cli
from phalanx.dashboard.rows.entries import ROWS
from phalanx.dashboard.server import POLICY
from phalanx.model.text.duration import format_moment
from tests.dashboard.cluster import Page, Site, until

WINDOWS = "/apis/phalanx.dev/v1alpha1/maintenancewindows"
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]


async def closed_schema(page: Page) -> Any:
    """Return the schema with every unnamed field forbidden: undeclared fields are errors."""
    status, body = await page.ask("/api/v1/schema.json", token="")
    assert status == 200
    schema = json.loads(body)
    for each in schema["$defs"].values():
        if "properties" in each:
            each["additionalProperties"] = False
    return schema


def check(schema: Any, path: str, answer: object) -> None:
    """Raise ValidationError unless `answer` follows the schema.

    The first test checks the schema itself, once: that is 100 times slower than to check an answer.
    """
    jsonschema.Draft202012Validator({**schema["answers"][path], "$defs": schema["$defs"]}).validate(answer)


async def test_every_answer_is_as_the_schema_says(page: Page) -> None:
    schema = await closed_schema(page)
    jsonschema.Draft202012Validator.check_schema({"$defs": {**schema["$defs"], **schema["answers"]}})
    for table in ROWS:
        check(schema, f"GET /api/v1/tables/{table}", await page.json(f"tables/{table}"))
    check(schema, "GET /api/v1/session", await page.json("session"))
    check(schema, "GET /api/v1/history", await page.json("history"))
    for path in ("gangs/ours/train", "gangs/ours/impossible", "gangs/hidden-ns/covert-train"):
        check(schema, "GET /api/v1/gangs/{namespace}/{name}", await page.json(path))
    check(schema, "GET /api/v1/pods/{namespace}/{name}", await page.json("pods/ours/alone"))
    status, body = await page.ask("/api/v1/gangs/ours/nobody")
    assert status == 404
    check(schema, "any refusal", json.loads(body))


async def test_the_schema_would_notice_an_answer_of_another_form(page: Page) -> None:
    schema = await closed_schema(page)
    answer = await page.json("tables/gangs")
    answer["rows"][0]["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        check(schema, "GET /api/v1/tables/gangs", answer)


async def test_waiting_gang_has_a_reason_and_a_fix(page: Page) -> None:
    rows = await page.rows("gangs")
    assert rows["hidden-ns/covert-train"]["state"] == "Starting"
    waiting = rows["ours/impossible"]
    assert (waiting["state"], waiting["reason"], waiting["minimum"]) == ("Pending", "NotEnoughResources", 2)
    assert "Insufficient cpu" in waiting["message"]
    assert waiting["asks"] == {"cpu": 2_000_000}
    answer = await page.json("gangs/ours/impossible")
    assert answer["why"]["state"] == "Pending"
    assert "8 cpu" in answer["why"]["change"]
    assert [each["name"] for each in answer["members"]] == ["impossible-0", "impossible-1"]
    assert {each["state"] for each in answer["members"]} == {"Pending"}


async def test_pods_that_would_be_evicted_are_listed(page: Page) -> None:
    """`train` deserves the share that `covert-train` has borrowed."""
    answer = await page.json("gangs/ours/train")
    assert answer["why"]["evictions"] is not None
    leaving = {each["gang"] for each in answer["why"]["evictions"]["pods"]}
    assert leaving == {"hidden-ns/covert-train"}


async def test_queues_equal_the_answer_of_phalanx_queue(page: Page) -> None:
    rows = await page.rows("queues")
    queue = rows["queue/covert-queue"]["queue"]
    assert queue["used"]["nvidia.com/gpu"] == "8"
    assert int(queue["borrowed"]["nvidia.com/gpu"]) == 8 - int(queue["entitled"]["nvidia.com/gpu"])
    assert queue["share"] == 100.0

    async def remembered() -> bool:
        history = await page.json("history")
        finest = min(history["series"], key=lambda each: each["resolution"])
        return bool((finest["used"].get("covert-queue") or [None])[-1] == 100.0)

    await until(remembered, "the share in the history")


async def test_nodes_show_free_amounts(page: Page) -> None:
    node = (await page.rows("nodes"))["shy-node"]
    assert node["rack"] == "r2"
    assert (node["offered"]["nvidia.com/gpu"], node["free"]["nvidia.com/gpu"]) == (4, 0)
    assert node["free"]["cpu"] == 6000


async def test_evictions_are_read_from_their_events(page: Page) -> None:
    await until(lambda: page_has(page, "evictions", 2), "both evictions")
    rows = (await page.rows("evictions")).values()
    # (Tests of other files evict pods on the same server.)
    assert {(row["namespace"], row["pod"], row["when"]) for row in rows} >= {
        ("ours", "train-9", "2026-01-02T03:04:05Z"),
        ("hidden-ns", "quiet-pod", "2026-01-02T03:04:05Z"),
    }


async def page_has(page: Page, table: str, count: int) -> bool:
    return len(await page.rows(table)) >= count


async def test_created_and_deleted_objects_are_streamed_without_a_second_list(site: Site, page: Page) -> None:
    listed = await page.json("tables/gangs")
    path = f"/api/v1/stream?tables=gangs:{listed['version']}&epoch={listed['epoch']}"
    headers = {"Authorization": f"Bearer {page.token}"}
    schema = await closed_schema(page)
    lists = [reflector.lists for reflector in page.served.watch._observer.reflectors]  # type: ignore[union-attr]
    async with asyncio.timeout(60), page.session.get(page.url + path, headers=headers) as answer:
        assert answer.content_type == "text/event-stream"
        await site.pod("ours", "brief", requests={"cpu": "1"})
        number, seen = "", {}
        while "ours/pod/brief" not in seen:
            event = await next_event(answer)
            check(schema, "GET /api/v1/stream: gangs", event["data"])
            number = event["id"]
            seen.update({row["id"]: row for row in event["data"]["put"]})
        assert number == f"{listed['epoch']}-{event['data']['version']}"
        await site.client.delete("/api/v1/namespaces/ours/pods/brief", grace_seconds=0)
        gone: list[str] = []
        while "ours/pod/brief" not in gone:
            gone += (await next_event(answer))["data"]["gone"]
    assert lists == [reflector.lists for reflector in page.served.watch._observer.reflectors]  # type: ignore[union-attr]


async def next_event(answer: Any) -> dict[str, Any]:
    """The next event that carries something."""
    found: dict[str, Any] = {}
    while True:
        line = (await answer.content.readline()).decode().rstrip("\n")
        if not line and "data" in found:
            return found
        key, _, value = line.partition(": ")
        if key in ("event", "id"):
            found[key] = value
        elif key == "data":
            found["data"] = json.loads(value)


async def test_returning_client_gets_the_changes_since_and_an_unknown_one_lists_again(
    site: Site, page: Page
) -> None:
    listed = await page.json("tables/gangs")
    await site.pod("ours", "meanwhile", requests={"cpu": "1"})
    await until(lambda: row_is_there(page, "ours/pod/meanwhile"), "the new row")
    headers = {"Authorization": f"Bearer {page.token}"}
    path = f"/api/v1/stream?tables=gangs:{listed['version']}&epoch="
    async with asyncio.timeout(60), page.session.get(page.url + path + listed["epoch"], headers=headers) as answer:
        event = await next_event(answer)
        assert "ours/pod/meanwhile" in {row["id"] for row in event["data"]["put"]}
        assert "hidden-ns/covert-train" not in {row["id"] for row in event["data"]["put"]}
    async with asyncio.timeout(60), page.session.get(page.url + path + "another", headers=headers) as answer:
        assert (await next_event(answer))["event"] == "stale"
    await site.client.delete("/api/v1/namespaces/ours/pods/meanwhile", grace_seconds=0)


async def row_is_there(page: Page, row: str) -> bool:
    return row in await page.rows("gangs")


async def test_deleted_pod_stays_in_the_timeline(site: Site, page: Page) -> None:
    await site.gang("ours", "short", 1, requests={"cpu": "500m"})
    await until(lambda: row_is_there(page, "ours/short"), "the gang")
    await site.client.delete("/api/v1/namespaces/ours/pods/short-0", grace_seconds=0)

    async def gone() -> bool:
        members = (await page.json("gangs/ours/short"))["members"]
        return [each["state"] for each in members] == ["Gone"] and bool(members[0]["gone"])

    await until(gone, "the member is told as gone")
    await site.client.delete("/apis/scheduling.volcano.sh/v1beta1/namespaces/ours/podgroups/short")


@pytest.mark.slow
async def test_what_if_question_has_the_answer_of_the_command(page: Page) -> None:
    schema = await closed_schema(page)
    question = json.dumps({"gang": "ours/impossible", "namespace": "ours"})
    status, body = await page.ask("/api/v1/what-if", method="POST", data=question)
    assert status == 200, body
    answer = json.loads(body)
    check(schema, "POST /api/v1/what-if", answer)
    assert answer["command"] == "phalanx what-if --gang=ours/impossible --namespace=ours"
    assert [each["state"] for each in answer["answer"]["asked"]] == ["NotWithinHorizon"]
    for wrong, words in (
        ({}, "no question"),
        ({"gang": "ours/nobody"}, "unknown gang"),
        ({"like": "--help"}, "requires --add-nodes"),
        ({"surprise": 1}, "unknown field"),
    ):
        status, body = await page.ask("/api/v1/what-if", method="POST", data=json.dumps(wrong))
        assert (status, words in body.decode()) == (400, True), body


async def test_page_has_strict_headers_and_no_third_party_content(page: Page) -> None:
    async with page.session.get(page.url + "/") as answer:
        assert answer.headers["Content-Security-Policy"] == POLICY
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
        html = await answer.text()
    assert not re.search(r"(?:src|href)=\"(?!/static/)", html)
    assert "<style" not in html
    assert not re.search(r"<script(?![^>]*src=)", html)
    for path in re.findall(r"(?:src|href)=\"(/[^\"]*)\"", html):
        status, body = await page.ask(path, token="")
        assert status == 200, path
        assert body


async def test_no_path_leads_out_of_the_static_files(page: Page) -> None:
    for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static/", "/static/vendor", "/etc/passwd"):
        status, _ = await page.ask(path, token="")
        assert status in (403, 404), path


async def test_gang_without_members_reports_their_eviction(site: Site, page: Page) -> None:
    """The message equals that of `phalanx why`, from the event of the eviction."""
    await site.gang("ours", "victim", 0, queue="our-queue", minimum=2)
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ours/podgroups/victim"
    uid = (await site.client.get(path))["metadata"]["uid"]
    await site.evicted("ours", "victim", "2 pods evicted for gang x/y", kind="PodGroup", uid=uid)
    await until(lambda: row_is_there(page, "ours/victim"), "the gang")

    async def told() -> bool:
        answer = await page.json("gangs/ours/victim")
        return answer["why"] is not None and answer["why"]["reason"] == "Preempted"

    await until(told, "the eviction")
    answer = await page.json("gangs/ours/victim")
    assert "2 pods evicted for gang x/y" in answer["why"]["message"]
    assert "Preempted" in [mark["what"] for mark in answer["marks"]]
    await site.client.delete(path)


async def test_waiting_gang_shows_its_start_time_or_the_reason_for_none(page: Page) -> None:
    start = (await page.json("gangs/ours/impossible"))["why"]["start"]
    assert start["reason"] == "CannotEverRun"
    assert start["message"]


async def test_maintenance_and_reservations_are_drawn_on_the_time_axis(site: Site, page: Page) -> None:
    later = "2999-01-01T00:00:00Z"
    window = {"nodes": {"names": ["node-1"]}, "start": format_moment(int(time.time()) + 3600), "duration": "1h"}
    for name, start in (("soon", window["start"]), ("some-day", later)):
        document = {"apiVersion": "phalanx.dev/v1alpha1", "kind": "MaintenanceWindow", "metadata": {"name": name}}
        await site.client.create(WINDOWS, {**document, "spec": {**window, "start": start}})

    async def told() -> bool:
        rows = (await page.rows("reservations")).values()
        return [row["title"] for row in rows if row["kind"] == "maintenance"] == ["MaintenanceWindow soon"]

    await until(told, "the window")
    for name in ("soon", "some-day"):
        await site.client.delete(f"{WINDOWS}/{name}")


async def test_gang_whose_pods_cannot_be_created_shows_the_reason_of_the_command(site: Site, page: Page) -> None:
    """Its job has no pods, because they are refused: there is no pod that could say so."""
    container = {"name": "c", "image": "x"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "podless"},
        "spec": {"parallelism": 3, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    made = await site.client.create("/apis/batch/v1/namespaces/ours/jobs", job)
    about = {"kind": "Job", "namespace": "ours", "name": "podless", "uid": made["metadata"]["uid"]}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "podless", "namespace": "ours"},
        "involvedObject": about,
        "reason": "FailedCreate",
        "message": 'Error creating: pods "podless-" is forbidden: exceeded quota: tight',
        "type": "Warning",
    }
    await site.client.create("/api/v1/namespaces/ours/events", event)
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "podless",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "podless", "ownerReferences": [owner]},
        "spec": {"minMember": 3, "queue": "our-queue"},
    }
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ours/podgroups"
    await site.client.create(path, group)

    async def told() -> bool:
        status, body = await page.ask("/api/v1/gangs/ours/podless")
        return status == 200 and (json.loads(body)["why"] or {}).get("missing", 0) == 3

    await until(told, "the missing members")
    why = (await page.json("gangs/ours/podless"))["why"]
    kubeconfig = str(site.directory / "kubeconfig")
    command = ("why", "podgroup/podless", "-n", "ours", "-o", "json", "--kubeconfig", kubeconfig)
    result = await asyncio.to_thread(CliRunner().invoke, cli, command)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (why["reason"], why["message"]) == (said["reason"], said["message"])
    assert why["reason"] == "QuotaExceeded"
    assert "Job podless: 0 of its 3 pods exist: " in why["message"]
    await site.client.delete(f"{path}/podless")
    await site.client.delete("/apis/batch/v1/namespaces/ours/jobs/podless")
    await site.client.delete("/api/v1/namespaces/ours/events/podless")


async def test_answers_of_commands_follow_the_schema(page: Page) -> None:
    schema = await closed_schema(page)
    for path, query in {
        "why": "?namespace=ours&name=impossible",
        "jobs": "",
        "order": "",
        "starts": "",
        "queues": "",
        "nodes": "",
        "settings": "",
    }.items():
        check(schema, f"GET /api/v1/commands/{path}", await page.json(f"commands/{path}{query}"))
