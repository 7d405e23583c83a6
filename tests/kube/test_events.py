"""Events are sent in the background, equal ones as one series, and no caller waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from phalanx.kube.client import KubeClient
from phalanx.kube.event_forms import CoreForm, EventForm, EventsForm
from phalanx.kube.events import EventRecorder, ObjectReference

from .conftest import FakeTime
from .stub_server import Hangup, Json, StubServer, refusal

PATH = "/apis/events.k8s.io/v1/namespaces/ns/events"
POD = ObjectReference("Pod", "a", "ns", "uid-a", "v1", "7")
NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z
CREATED = Json({}, 201)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def form() -> EventForm:
    return EventsForm()


@pytest.fixture
async def recorder(
    client: KubeClient, clock: Clock, fake_time: FakeTime, form: EventForm
) -> AsyncIterator[EventRecorder]:
    async def until_swept(seconds: float) -> None:
        await asyncio.Event().wait()  # these tests call ``sweep`` themselves

    made = EventRecorder(
        client,
        controller="phalanx",
        instance="phalanx-host",
        capacity=3,
        wall_clock=clock,
        sleep=until_swept,
        form=form,
    )
    object.__setattr__(made._policy, "sleep", fake_time.sleep)
    task = asyncio.create_task(made.run())
    await asyncio.sleep(0)
    yield made
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def scheduled(recorder: EventRecorder, note: str = "Successfully assigned ns/a to n1", **options: Any) -> bool:
    return recorder.record(POD, **{"reason": "Scheduled", "action": "Binding", "note": note, **options})


async def test_an_event_as_the_api_wants_it(server: StubServer, recorder: EventRecorder, clock: Clock) -> None:
    server.on("POST", PATH, CREATED)
    clock.now += 0.25
    assert scheduled(recorder, related=ObjectReference("Node", "n1"))
    assert await recorder.drain(5)
    body = server.requests[0].json
    name = body["metadata"].pop("name")
    assert name == f"a.{int((NOW + 0.25) * 1e9):x}"
    assert body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "ns"},
        "eventTime": "2026-01-01T00:00:00.250000Z",
        "reportingController": "phalanx",
        "reportingInstance": "phalanx-host",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "note": "Successfully assigned ns/a to n1",
        "regarding": {
            "kind": "Pod",
            "name": "a",
            "namespace": "ns",
            "uid": "uid-a",
            "apiVersion": "v1",
            "resourceVersion": "7",
        },
        "related": {"kind": "Node", "name": "n1"},
    }


@pytest.mark.parametrize("form", [CoreForm()], ids=["core"])
async def test_an_event_of_a_controller_has_the_moments_that_its_readers_look_at(
    server: StubServer, recorder: EventRecorder, clock: Clock
) -> None:
    path = "/api/v1/namespaces/ns/events"
    server.on("POST", path, CREATED)
    scheduled(recorder)
    assert await recorder.drain(5)
    body = server.seen("POST", path)[0].json
    name = body["metadata"].pop("name")
    assert body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "ns"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
        "source": {"component": "phalanx"},
        "reportingComponent": "phalanx",
        "reportingInstance": "phalanx-host",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "message": "Successfully assigned ns/a to n1",
        "involvedObject": {
            "kind": "Pod",
            "name": "a",
            "namespace": "ns",
            "uid": "uid-a",
            "apiVersion": "v1",
            "resourceVersion": "7",
        },
    }
    server.on("PATCH", f"{path}/{name}", CREATED)
    clock.now += 10
    scheduled(recorder)
    assert await recorder.drain(5)
    assert server.seen("PATCH", f"{path}/{name}")[0].json == {"count": 2, "lastTimestamp": "2026-01-01T00:00:10Z"}


async def test_limits_of_the_api_are_kept(server: StubServer, recorder: EventRecorder) -> None:
    server.on("POST", PATH, CREATED)
    recorder.record(ObjectReference("Pod", "p" * 253, "ns"), reason="r" * 200, action="a" * 200, note="ü" * 1000)
    assert await recorder.drain(5)
    body = server.requests[0].json
    assert len(body["metadata"]["name"].encode()) <= 253
    assert len(body["note"].encode()) <= 1024
    assert body["note"].endswith("ü…")
    assert len(body["reason"].encode()) <= 128
    assert len(body["action"].encode()) <= 128


async def test_event_about_a_cluster_scoped_object_is_recorded_in_the_namespace_default(
    server: StubServer, recorder: EventRecorder
) -> None:
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    server.on("POST", path, CREATED)
    recorder.record(ObjectReference("Node", "n1"), reason="R", action="A", note="n")
    assert await recorder.drain(5)
    assert server.requests[0].path == path


async def test_two_events_of_one_moment_have_two_names(server: StubServer, recorder: EventRecorder) -> None:
    server.on("POST", PATH, CREATED)
    scheduled(recorder, "one")
    scheduled(recorder, "two")
    assert await recorder.drain(5)
    assert len({request.json["metadata"]["name"] for request in server.requests}) == 2


async def test_equal_events_become_a_series(server: StubServer, recorder: EventRecorder, clock: Clock) -> None:
    server.on("POST", PATH, CREATED)
    scheduled(recorder)
    assert await recorder.drain(5)
    name = server.requests[0].json["metadata"]["name"]
    server.on("PATCH", f"{PATH}/{name}", CREATED)

    async def told() -> list[Any]:
        assert await recorder.drain(5)
        return [request.json["series"] for request in server.seen("PATCH", f"{PATH}/{name}")]

    clock.now += 10
    scheduled(recorder)
    second = {"count": 2, "lastObservedTime": "2026-01-01T00:00:10.000000Z"}
    assert await told() == [second]
    for _ in range(5):  # more of the same is only counted
        clock.now += 300
        scheduled(recorder)
        recorder.sweep()
    assert await told() == [second]
    clock.now += 300
    scheduled(recorder)
    recorder.sweep()  # half an hour after the last event of the series
    sixth = {"count": 8, "lastObservedTime": "2026-01-01T00:30:10.000000Z"}
    assert await told() == [second, sixth]
    clock.now += 200
    scheduled(recorder)
    clock.now += 360
    recorder.sweep()  # six minutes of silence: the last count, and the series is over
    last = {"count": 9, "lastObservedTime": "2026-01-01T00:33:30.000000Z"}
    assert await told() == [second, sixth, last]
    scheduled(recorder)
    assert await recorder.drain(5)
    assert len(server.seen("POST", PATH)) == 2


async def test_another_note_is_another_event(server: StubServer, recorder: EventRecorder) -> None:
    server.on("POST", PATH, CREATED)
    scheduled(recorder, "0/5 nodes")
    scheduled(recorder, "0/6 nodes")
    assert await recorder.drain(5)
    assert [request.json["note"] for request in server.requests] == ["0/5 nodes", "0/6 nodes"]


async def test_event_repeated_before_it_was_sent_is_created_as_a_series(
    server: StubServer, recorder: EventRecorder
) -> None:
    server.on("POST", PATH, CREATED)
    for _ in range(3):
        scheduled(recorder)
    assert await recorder.drain(5)
    assert [request.json["series"]["count"] for request in server.requests] == [3]


async def test_series_that_outlived_its_event_object_is_created_again(
    server: StubServer, recorder: EventRecorder
) -> None:
    server.on("POST", PATH, CREATED)
    scheduled(recorder)
    assert await recorder.drain(5)
    scheduled(recorder)  # the stub answers the patch with 404
    assert await recorder.drain(5)
    first, second = server.seen("POST", PATH)
    assert second.json == {
        **first.json,
        "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"},
    }


async def test_overload_drops_and_counts(server: StubServer, recorder: EventRecorder) -> None:
    server.on("POST", PATH, CREATED)
    taken = [scheduled(recorder, f"note {n}") for n in range(10)]
    assert taken == [True] * 3 + [False] * 7
    assert recorder.dropped == 7
    assert await recorder.drain(5)
    assert recorder.sent == 3
    assert scheduled(recorder, "note 9")  # a dropped event does not count as sent
    assert await recorder.drain(5)
    assert recorder.sent == 4


async def test_a_passing_failure_is_retried(
    server: StubServer, recorder: EventRecorder, fake_time: FakeTime
) -> None:
    server.on(
        "POST", PATH, refusal(429, "TooManyRequests", retry_after="2"), Hangup(), refusal(409, "AlreadyExists")
    )
    scheduled(recorder)
    assert await recorder.drain(5)
    assert (recorder.sent, recorder.dropped) == (1, 0)
    assert len(server.requests) == 3
    assert fake_time.pauses[0] >= 2


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (refusal(403, "Forbidden", "ns is being terminated", causes=[{"reason": "NamespaceTerminating"}]), 0),
        (refusal(404, "NotFound", 'namespaces "ns" not found'), 0),
        (refusal(403, "Forbidden", "events is forbidden"), 1),
        (refusal(422, "Invalid", "bad event"), 1),
    ],
)
async def test_refused_event_is_dropped_and_logged_at_most_once(
    server: StubServer,
    recorder: EventRecorder,
    caplog: pytest.LogCaptureFixture,
    answer: Json,
    lines: int,
) -> None:
    server.on("POST", PATH, answer)
    with caplog.at_level(logging.INFO):
        for n in range(3):
            scheduled(recorder, f"note {n}")
        assert await recorder.drain(5)
    assert len(caplog.records) == lines
    assert (recorder.sent, recorder.dropped) == (0, 3)


async def test_drain_gives_up(server: StubServer, client: KubeClient) -> None:
    idle = EventRecorder(client, controller="phalanx", instance="i")
    assert await idle.drain(0.01)
    scheduled(idle)
    assert not await idle.drain(0.01)  # no task runs the recorder


def warned(recorder: EventRecorder, note: str = "spec is invalid") -> bool:
    return recorder.record(POD, reason="Invalid", action="Validating", note=note, type="Warning", once=True)


async def test_event_that_the_api_has_from_an_earlier_process_is_not_sent_again(
    server: StubServer, recorder: EventRecorder, clock: Clock
) -> None:
    server.on("POST", PATH, CREATED)
    assert warned(recorder)
    assert await recorder.drain(5)
    name = server.requests[-1].json["metadata"]["name"]
    server.on("GET", f"{PATH}/{name}", Json({"metadata": {"name": name}}))
    clock.now += 5
    second = EventRecorder(recorder._client, controller="phalanx", instance="next", wall_clock=clock)
    task = asyncio.create_task(second.run())
    before = len(server.requests)
    assert warned(second)
    assert warned(second, "spec is invalid in another field")
    assert await second.drain(5)
    sent = [request.json["note"] for request in server.requests[before:] if request.method == "POST"]
    assert sent == ["spec is invalid in another field"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_event_that_occurs_again_in_one_process_is_sent_again(
    server: StubServer, recorder: EventRecorder, clock: Clock
) -> None:
    server.on("POST", PATH, CREATED)
    assert warned(recorder)
    assert await recorder.drain(5)
    clock.now += 1000
    recorder.sweep()
    assert warned(recorder)
    assert await recorder.drain(5)
    names = [request.json["metadata"]["name"] for request in server.requests if request.method == "POST"]
    assert len(set(names)) == 2


async def test_optional_events_are_dropped_while_many_events_are_queued(client: KubeClient) -> None:
    recorder = EventRecorder(client, controller="phalanx", instance="phalanx-host")
    assert all(scheduled(recorder, f"note {number}", optional=True) for number in range(100))
    assert not scheduled(recorder, "one too many", optional=True)
    assert scheduled(recorder, "urgent")
    assert recorder.dropped == 1
