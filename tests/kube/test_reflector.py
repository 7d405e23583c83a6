"""A reflector passes each state of each object to its sink once, whatever the state of the connection."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from phalanx.kube.changes import Change, Delete, Malformed, Synced, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import Unreachable
from phalanx.kube.failures import Failures
from phalanx.kube.paths import Resource
from phalanx.kube.reflector import Reflector, ReflectorState
from phalanx.kube.wire import ItemForm
from phalanx.model.text.decoding import decode_json

from .conftest import FakeTime
from .stub_server import (
    Hangup,
    Json,
    StubServer,
    Text,
    Watch,
    bookmark,
    event,
    page,
    refusal,
    status,
    thing,
)

PODS = Resource("", "v1", "pods", "Pod")
PATH = "/api/v1/pods"
GONE = event("ERROR", status(410, "Expired", "too old resource version"))


class Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str


class Pod(msgspec.Struct):
    metadata: Meta
    color: str = ""


class Log:
    """A sink that keeps everything as one line of text each, and lets a test wait for a line."""

    def __init__(self) -> None:
        self.changes: list[Change[Pod]] = []
        self.lines: list[str] = []
        self._news = asyncio.Event()

    def __call__(self, change: Change[Pod]) -> None:
        self.changes.append(change)
        match change:
            case Upsert(pod, _, key, uid):
                self.lines.append(f"upsert {key[1]} {uid} {pod.color}".rstrip())
            case Delete(key, uid, last):
                self.lines.append(f"delete {key[1]} {uid}" + (f" was {last.color}" if last is not None else ""))
            case Malformed(key, uid):
                self.lines.append(f"malformed {key[1]} {uid}".rstrip())
            case Synced():
                self.lines.append("synced")
        self._news.set()

    async def until(self, line: str, times: int = 1) -> list[str]:
        await self.when(lambda: self.lines.count(line) >= times)
        return self.lines

    async def when(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                self._news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await self._news.wait()


@asynccontextmanager
async def reflecting(
    client: KubeClient, sink: Log, time: FakeTime, **options: Any
) -> AsyncIterator[Reflector[Pod]]:
    reflector = Reflector(
        client,
        PODS,
        msgspec.json.Decoder(Pod).decode,
        sink,
        clock=time.clock,
        sleep=time.sleep,
        random=lambda: 0.5,
        **options,
    )
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def sink() -> Log:
    return Log()


async def test_lists_then_watches_from_the_lists_version(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    server.on("GET", PATH, page(10, thing("a", 5, color="red"), thing("b", 7)))
    server.on(
        "GET",
        PATH,
        Watch(
            (
                event("ADDED", thing("c", 11)),
                event("MODIFIED", thing("a", 12, color="blue")),
                event("DELETED", thing("b", 13, color="gray")),
            )
        ),
        watch=True,
    )
    async with reflecting(client, sink, fake_time, field_selector="spec.nodeName=") as reflector:
        assert await sink.until("delete b uid-b was gray") == [
            "upsert a uid-a red",
            "upsert b uid-b",
            "synced",
            "upsert c uid-c",
            "upsert a uid-a blue",
            "delete b uid-b was gray",
        ]
        assert len(reflector) == 2
        assert reflector.synced.is_set()
        assert reflector.state is ReflectorState.WATCHING
        assert reflector.last_contact == fake_time.now
    listed, watched = server.requests
    assert listed.query == {"limit": "4000", "fieldSelector": "spec.nodeName="}
    assert listed.headers["Accept-Encoding"] == "gzip"
    assert watched.headers["Accept-Encoding"] == "identity"
    assert watched.query == {
        "watch": "true",
        "resourceVersion": "10",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "450",
        "fieldSelector": "spec.nodeName=",
    }


async def test_reads_a_long_list_page_by_page(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    server.on("GET", PATH, page(10, thing("a", 1), token="t1"), page(10, thing("b", 2), token="t2"), page(10))
    server.on("GET", PATH, Watch(), watch=True)
    async with reflecting(client, sink, fake_time, page_size=1):
        assert await sink.until("synced") == ["upsert a uid-a", "upsert b uid-b", "synced"]
    assert [request.query.get("continue") for request in server.seen("GET", PATH, watch=False)] == [
        None,
        "t1",
        "t2",
    ]


async def test_a_list_that_is_not_too_long_is_asked_for_as_a_whole(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    first = page(10, thing("a", 1), token="t1", remaining=2)
    server.on("GET", PATH, first, page(12, thing("a", 1), thing("b", 2), thing("c", 11)))
    server.on("GET", PATH, Watch(), watch=True)
    async with reflecting(client, sink, fake_time, page_size=1):
        assert await sink.until("synced") == ["upsert a uid-a", "upsert b uid-b", "upsert c uid-c", "synced"]
        await sink.when(lambda: bool(server.seen("GET", PATH, watch=True)))
    assert [request.query for request in server.seen("GET", PATH, watch=False)] == [{"limit": "1"}, {}]
    assert server.seen("GET", PATH, watch=True)[0].query["resourceVersion"] == "12"


async def test_a_long_list_comes_by_pages(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx.kube.pages.WHOLE_LIST", 1000)
    server.on("GET", PATH, page(10, thing("a", 1), token="t1", remaining=40), page(10, thing("b", 2)))
    server.on("GET", PATH, Watch(), watch=True)
    async with reflecting(client, sink, fake_time, page_size=1):
        assert await sink.until("synced") == ["upsert a uid-a", "upsert b uid-b", "synced"]
    assert [request.query for request in server.seen("GET", PATH, watch=False)] == [
        {"limit": "1"},
        {"limit": "1", "continue": "t1"},
    ]


# (A connection that is lost under a GET is tried once more by the client.)
@pytest.mark.parametrize("answers", [[refusal(504, "Timeout", "it took too long")], [Hangup(), Hangup()]])
async def test_list_that_cannot_be_read_at_once_continues_in_pages_and_is_not_retried_whole(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime, answers: list[Any]
) -> None:
    first, last = page(10, thing("a", 1), token="t1", remaining=1), page(10, thing("b", 2))
    server.on("GET", PATH, first, *answers, last, first, last)
    server.on("GET", PATH, Watch((GONE,)), Watch(), watch=True)
    async with reflecting(client, sink, fake_time, page_size=1):
        await sink.until("synced", 2)
    assert sink.lines == ["upsert a uid-a", "upsert b uid-b", "synced", "synced"]
    asked = [request.query for request in server.seen("GET", PATH, watch=False)]
    by_pages = [{"limit": "1"}, {"limit": "1", "continue": "t1"}]
    assert asked == [by_pages[0], *({} for _ in answers), by_pages[1], *by_pages]


class Batches(Log):
    """A sink that gets the first list as a batch, and later changes one by one."""

    def all(self, changes: Sequence[Upsert[Pod]]) -> None:
        self.lines.append("+".join(change.key[1] for change in changes))
        self._news.set()


@pytest.mark.parametrize("form", [None, ItemForm(Pod, lambda pod: pod)], ids=["alone", "with a form"])
async def test_listed_objects_arrive_as_a_batch_and_in_order_with_later_changes(
    server: StubServer, client: KubeClient, fake_time: FakeTime, form: ItemForm[Pod] | None
) -> None:
    sink = Batches()
    server.on("GET", PATH, page(10, thing("a", 1), thing("b", 2), token="t1"), page(10, thing("c", 3)))
    lines = [
        event("ADDED", thing("d", 11)),
        event("MODIFIED", thing("a", 12)),
        event("MODIFIED", thing("d", 13)),  # the same object again
        event("MODIFIED", thing("c", 2)),  # older than the listed one
        event("ADDED", thing("d", 13)),  # repeated
        event("DELETED", thing("a", 14)),
        event("ADDED", thing("e", 15)),
    ]
    server.on("GET", PATH, Watch(tuple(lines)), watch=True)
    async with reflecting(client, sink, fake_time, page_size=2, sink_all=sink.all, form=form):
        await sink.when(lambda: "e" in sink.lines[-1:])
    assert sink.lines[:3] == ["a+b", "c", "synced"]
    # However the events fell into reads, no order between changes of one object is lost.
    told = "+".join(sink.lines[3:]).split("+")
    assert told == ["d", "a", "d", "delete a uid-a was ", "e"]
    assert all(len(set(names)) == len(names) for names in (line.split("+") for line in sink.lines))


async def test_pages_are_read_at_once_where_all_their_objects_can_be(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    forms: list[str] = []

    def read(pod: Pod) -> Pod | None:
        forms.append(pod.metadata.name)
        return pod if pod.color != "odd" else None

    broken = {"metadata": {"name": "d", "namespace": "ns", "uid": "uid-d", "resourceVersion": "4"}, "color": 7}
    server.on(
        "GET",
        PATH,
        page(10, thing("a", 1, color="red"), thing("b", 2), token="t1"),
        page(10, thing("c", 3), broken, token="t2"),
        page(10, thing("e", 5, color="odd")),
        # The reflector compares the later list with its state.
        page(20, thing("a", 1, color="red"), thing("b", 12), thing("c", 3), thing("e", 5, color="odd")),
    )
    server.on("GET", PATH, Watch((GONE,)), Watch(), watch=True)
    form = ItemForm(Pod, read)
    async with reflecting(client, sink, fake_time, page_size=2, form=form):
        lines = await sink.until("synced", times=2)
    first = ["upsert a uid-a red", "upsert b uid-b", "upsert c uid-c", "malformed d uid-d", "upsert e uid-e odd"]
    assert lines == [*first, "synced", "upsert b uid-b", "delete d uid-d", "synced"]
    assert forms == ["a", "b", "e"]


async def test_progress_of_a_long_list_is_logged(
    server: StubServer,
    client: KubeClient,
    sink: Log,
    fake_time: FakeTime,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("phalanx.kube.pages.WHOLE_LIST", 0)
    times = itertools.count(0.0, 1.0)
    pages = [page(10, thing(name, 1), token=name, remaining=3 - at) for at, name in enumerate("abc")]
    server.on("GET", PATH, *pages, page(10, thing("d", 1)))
    server.on("GET", PATH, Watch(), watch=True)
    fake_time.clock = lambda: next(times)  # type: ignore[method-assign]
    async with reflecting(client, sink, fake_time, page_size=1):
        await sink.until("synced")
    assert [line for line in caplog.messages if "are read" in line] == [f"{PATH}: 2 of 4 are read"]


async def test_long_list_yields_to_other_tasks_between_objects(
    server: StubServer, client: KubeClient, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx.kube.reflector.AT_ONCE", 2)
    sink = Batches()
    server.on("GET", PATH, page(10, *(thing(name, 1) for name in "abcde")))
    server.on("GET", PATH, Watch(), watch=True)
    async with reflecting(client, sink, fake_time, sink_all=sink.all):
        assert await sink.until("synced") == ["a+b", "c+d", "e", "synced"]


async def test_sink_that_fails_on_a_batch_affects_no_other_part(
    server: StubServer, client: KubeClient, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Log()

    def fails(changes: Sequence[Upsert[Pod]]) -> None:
        raise LookupError("a bug of ours")

    server.on("GET", PATH, page(10, thing("a", 1)))
    server.on("GET", PATH, Watch((event("DELETED", thing("a", 11)),)), watch=True)
    async with reflecting(client, sink, fake_time, sink_all=fails):
        assert await sink.until("delete a uid-a was ") == ["synced", "delete a uid-a was "]
    assert "a bug of ours" in caplog.text


async def test_expired_list_token_restarts_the_list_and_finally_reads_it_without_pages(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    first, expired = page(10, thing("a", 1), token="t1"), refusal(410, "Expired")
    server.on("GET", PATH, first, expired, first, expired, first, expired, page(11, thing("b", 2)))
    server.on("GET", PATH, Watch(), watch=True)
    async with reflecting(client, sink, fake_time, page_size=1):
        # Objects that only the aborted lists contained are deleted by the complete list.
        assert await sink.until("synced") == ["upsert a uid-a", "upsert b uid-b", "delete a uid-a", "synced"]
    assert "limit" not in server.seen("GET", PATH, watch=False)[-1].query
    assert fake_time.pauses == []


async def test_a_clean_end_of_a_watch_is_followed_by_the_next_from_the_last_version(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    server.on("GET", PATH, page(10))
    server.on(
        "GET",
        PATH,
        Watch((event("ADDED", thing("a", 11)),), end="clean"),
        Watch((bookmark(20),), end="clean"),
        Watch((event("DELETED", thing("a", 21)),), end="clean"),
        Watch((event("ADDED", thing("a", 22, uid="other", color="red")),)),
        watch=True,
    )
    async with reflecting(client, sink, fake_time) as reflector:
        await sink.until("upsert a other red")
        assert reflector.lists == 1
    assert [w.query["resourceVersion"] for w in server.seen("GET", PATH, watch=True)] == ["10", "11", "20", "21"]
    assert fake_time.pauses == []


async def test_a_watch_that_ends_at_once_without_news_is_not_repeated_hot(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    server.on("GET", PATH, page(10))
    server.on("GET", PATH, *[Watch(end="clean")] * 7, Watch((event("ADDED", thing("a", 11)),)), watch=True)
    async with reflecting(client, sink, fake_time):
        await sink.until("upsert a uid-a")
    # Three quarters of 0.8 s doubling to 30 s: the random number of these tests is a half.
    assert fake_time.pauses == pytest.approx([0.6, 1.2, 2.4, 4.8, 9.6, 19.2, 22.5])


@pytest.mark.parametrize("how", ["in the stream", "as the answer"])
async def test_expired_version_causes_a_new_list_whose_absences_are_deletions(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime, how: str
) -> None:
    gone = Watch((GONE,), end="clean") if how == "in the stream" else refusal(410, "Expired")
    server.on(
        "GET",
        PATH,
        page(10, thing("kept", 1), thing("changed", 2), thing("deleted", 3), thing("recreated", 4, uid="first")),
        page(30, thing("kept", 1), thing("changed", 22), thing("new", 23), thing("recreated", 24, uid="second")),
    )
    server.on("GET", PATH, gone, Watch((event("ADDED", thing("last", 31)),)), watch=True)
    async with reflecting(client, sink, fake_time) as reflector:
        lines = await sink.until("upsert last uid-last")
        assert len(reflector) == 5
    assert lines[lines.index("synced") + 1 :] == [
        "upsert changed uid-changed",
        "upsert new uid-new",
        "delete recreated first",
        "upsert recreated second",
        "delete deleted uid-deleted",
        "synced",
        "upsert last uid-last",
    ]
    assert server.seen("GET", PATH, watch=True)[-1].query["resourceVersion"] == "30"
    assert fake_time.pauses == pytest.approx([0.6])


@pytest.mark.parametrize("end", ["reset", "cut"])
async def test_a_broken_connection_resumes_where_it_broke(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime, end: str
) -> None:
    server.on("GET", PATH, page(10))
    server.on(
        "GET",
        PATH,
        Watch((event("ADDED", thing("a", 11)), event("ADDED", thing("b", 12))), end=end),
        Watch((event("ADDED", thing("b", 12)), event("ADDED", thing("c", 13)))),
        watch=True,
    )
    async with reflecting(client, sink, fake_time) as reflector:
        lines = await sink.until("upsert c uid-c")
        assert reflector.lists == 1
    assert lines == ["synced", "upsert a uid-a", "upsert b uid-b", "upsert c uid-c"]
    assert fake_time.pauses == pytest.approx([0.6])


async def test_silence_longer_than_allowed_is_a_dead_connection(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    server.on("GET", PATH, page(10))
    server.on("GET", PATH, Watch((bookmark(15),), end="hang"), Watch((event("ADDED", thing("a", 16)),)), watch=True)
    async with reflecting(client, sink, fake_time, silence=0.05):
        await sink.until("upsert a uid-a")
    assert server.seen("GET", PATH, watch=True)[1].query["resourceVersion"] == "15"


async def test_retry_after_is_honoured(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    server.on("GET", PATH, refusal(429, "TooManyRequests", retry_after="7"), page(10))
    server.on("GET", PATH, refusal(503, "ServiceUnavailable"), Watch((event("ADDED", thing("a", 11)),)), watch=True)
    async with reflecting(client, sink, fake_time) as reflector:
        await sink.until("upsert a uid-a")
        assert reflector.lists == 1
        assert reflector.restarts == {"429": 1, "503": 1}
    assert fake_time.pauses == pytest.approx([7 * 1.05, 1.2])


async def test_age_of_the_cache_grows_only_without_a_watch_and_from_the_last_news(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    no = refusal(403, "Forbidden", "may not list pods")
    lags: list[float] = []

    def later(_: object) -> Watch:
        fake_time.now += 90
        lags.append(reflector.lag)
        return Watch((GONE,))

    server.on("GET", PATH, page(10, thing("a", 9)), no)
    server.on("GET", PATH, later, watch=True)
    async with reflecting(client, sink, fake_time, absent_period=20.0) as reflector:
        assert reflector.lag == 0
        await sink.when(lambda: len(fake_time.pauses) >= 3)
        assert reflector.lag == pytest.approx(sum(fake_time.pauses))
        assert reflector.restarts == {"410": 1, "403": 1}
    assert lags == [90]


async def test_a_server_that_hangs_up_is_asked_again_ever_more_slowly(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    # The client itself repeats a GET once, so two hang-ups make one failure.
    server.on("GET", PATH, Hangup(), Hangup(), Hangup(), Hangup(), page(10))
    server.on("GET", PATH, Watch(), watch=True)
    async with reflecting(client, sink, fake_time):
        await sink.until("synced")
    assert fake_time.pauses == pytest.approx([0.6, 1.2])


async def test_old_failures_are_forgotten_after_two_healthy_minutes(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    def later(_: object) -> Watch:
        fake_time.now += 200
        return Watch((bookmark(12),), end="reset")

    server.on("GET", PATH, page(10))
    server.on(
        "GET",
        PATH,
        *[refusal(500, "InternalError")] * 2,
        Watch((bookmark(11),), end="clean"),
        later,
        Watch((event("ADDED", thing("a", 13)),)),
        watch=True,
    )
    async with reflecting(client, sink, fake_time):
        await sink.until("upsert a uid-a")
    assert fake_time.pauses == pytest.approx([0.6, 1.2, 0.6])


async def test_connections_cut_once_a_minute_do_not_delay_changes(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    """As behind a load balancer: each watch works like the first, and the pauses do not grow."""
    versions = itertools.count(11)

    def begins(_: object) -> Watch:
        return Watch((bookmark(next(versions)),), end="clean")

    def ends_a_minute_later(_: object) -> Watch:
        fake_time.now += 60
        return Watch((bookmark(next(versions)),), end="reset")

    server.on("GET", PATH, page(10))
    last = Watch((event("ADDED", thing("a", 99)),))
    server.on("GET", PATH, *[begins, ends_a_minute_later] * 5, last, watch=True)
    async with reflecting(client, sink, fake_time):
        await sink.until("upsert a uid-a")
    assert fake_time.pauses == pytest.approx([0.6] * 5)


@pytest.mark.parametrize("form", [None, ItemForm(Pod, lambda pod: pod)], ids=["alone", "with a form"])
@pytest.mark.parametrize("where", ["list", "watch"])
async def test_one_malformed_object_harms_only_itself(
    server: StubServer,
    client: KubeClient,
    sink: Log,
    fake_time: FakeTime,
    where: str,
    form: ItemForm[Pod] | None,
) -> None:
    objects = [thing("a", 1), thing("odd", 2, color=["no", "text"]), thing("b", 3), {"metadata": 7}, None]
    watch = Watch((event("DELETED", thing("odd", 9, color=0)), event("ADDED", thing("z", 20))))
    if where == "list":
        server.on("GET", PATH, page(5, *objects))
    else:
        server.on("GET", PATH, page(0))
        watch = Watch((*(event("ADDED", obj) for obj in objects), *watch.events))
    server.on("GET", PATH, watch, watch=True)
    async with reflecting(client, sink, fake_time, form=form) as reflector:
        lines = [line for line in await sink.until("upsert z uid-z") if line != "synced"]
        assert reflector.lists == 1
        assert reflector.malformed == 3
        assert len(reflector) == 3
    assert lines == [
        "upsert a uid-a",
        "malformed odd uid-odd",
        "upsert b uid-b",
        "malformed",
        "malformed",
        "delete odd uid-odd",
        "upsert z uid-z",
    ]
    odd = next(change for change in sink.changes if isinstance(change, Malformed))
    assert odd.key == ("ns", "odd")
    assert "$.color" in odd.error
    assert json.loads(odd.raw)["color"] == ["no", "text"]


async def test_repaired_malformed_object_is_reported_as_added(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    server.on("GET", PATH, page(5, thing("a", 1, color=1)))
    server.on("GET", PATH, Watch((event("MODIFIED", thing("a", 6, color="red")),)), watch=True)
    async with reflecting(client, sink, fake_time):
        assert await sink.until("upsert a uid-a red") == ["malformed a uid-a", "synced", "upsert a uid-a red"]


async def test_a_line_that_is_not_json_breaks_the_watch_and_not_the_reflector(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    server.on("GET", PATH, page(10))
    server.on(
        "GET",
        PATH,
        Watch((event("ADDED", thing("a", 11)), b"<html>\n")),
        Watch((event("ADDED", thing("b", 12)),)),
        watch=True,
    )
    async with reflecting(client, sink, fake_time):
        assert await sink.until("upsert b uid-b") == ["synced", "upsert a uid-a", "upsert b uid-b"]


async def test_repeated_and_older_events_are_dropped(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    server.on("GET", PATH, page(10, thing("a", 9, color="new")))
    server.on(
        "GET",
        PATH,
        Watch(
            (
                event("ADDED", thing("a", 9, color="new")),
                event("MODIFIED", thing("a", 8, color="old")),
                event("DELETED", thing("a", 7, uid="a-predecessor")),
                event("DELETED", thing("stranger", 11)),
                event("ADDED", thing("b", 12)),
            ),
            end="clean",
        ),
        Watch(),
        watch=True,
    )
    async with reflecting(client, sink, fake_time):
        assert await sink.until("upsert b uid-b") == ["upsert a uid-a new", "synced", "upsert b uid-b"]
        await sink.when(lambda: len(server.seen("GET", PATH, watch=True)) == 2)
    # Old events do not turn the clock back.
    assert server.seen("GET", PATH, watch=True)[1].query["resourceVersion"] == "12"


async def test_a_new_uid_in_a_watch_is_a_deletion_and_a_creation(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    server.on("GET", PATH, page(10, thing("a", 9, uid="first")))
    server.on("GET", PATH, Watch((event("ADDED", thing("a", 12, uid="second")),)), watch=True)
    async with reflecting(client, sink, fake_time):
        assert await sink.until("upsert a second") == [
            "upsert a first",
            "synced",
            "delete a first",
            "upsert a second",
        ]


async def test_resource_that_disappears_and_returns_is_watched_again(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    absent = Text("404 page not found", 404)
    server.on(
        "GET",
        PATH,
        absent,
        absent,
        page(10, thing("a", 9)),
        *[refusal(404, "NotFound")] * 6,
        page(50, thing("b", 49)),
    )
    server.on("GET", PATH, Watch((GONE,)), Watch(), watch=True)
    async with reflecting(client, sink, fake_time, absent_period=20.0):
        assert await sink.until("synced", times=4) == [
            "synced",  # not there: nothing exists, and that is the whole truth
            "upsert a uid-a",
            "synced",
            "delete a uid-a",
            "synced",
            "upsert b uid-b",
            "synced",
        ]
    # (The first missing answer does not delete the objects.)
    assert fake_time.pauses == pytest.approx([22.0, 22.0, 0.6, *[1.0] * 5, 22.0])


async def test_a_server_that_does_not_know_the_kind_yet_takes_nothing_away(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    nothing = refusal(404, "NotFound")
    server.on(
        "GET", PATH, page(10, thing("a", 9)), nothing, nothing, nothing, page(11, thing("a", 9), thing("b", 10))
    )
    server.on("GET", PATH, Watch((GONE,)), Watch(), watch=True)
    async with reflecting(client, sink, fake_time):
        assert await sink.until("synced", times=2) == ["upsert a uid-a", "synced", "upsert b uid-b", "synced"]


async def test_a_404_of_a_proxy_is_not_an_absence(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    server.on(
        "GET", PATH, page(10, thing("a", 9)), Text("<h1>nginx: no such host</h1>", 404), page(11, thing("a", 9))
    )
    server.on("GET", PATH, Watch((GONE,)), Watch((event("ADDED", thing("b", 12)),)), watch=True)
    async with reflecting(client, sink, fake_time):
        lines = await sink.until("upsert b uid-b")
    assert lines == ["upsert a uid-a", "synced", "synced", "upsert b uid-b"]


async def test_forbidden_resource_stays_cached_and_is_logged_once(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    no = refusal(403, "Forbidden", "may not list pods")
    server.on("GET", PATH, page(10, thing("a", 9)), *[no] * 8, page(11, thing("a", 9), thing("b", 10)))
    server.on("GET", PATH, Watch((GONE,)), Watch(), watch=True)
    with caplog.at_level(logging.ERROR):
        async with reflecting(client, sink, fake_time, absent_period=20.0) as reflector:
            lines = await sink.until("synced", times=2)
            assert len(reflector) == 2
    assert lines == ["upsert a uid-a", "synced", "upsert b uid-b", "synced"]
    assert [record.getMessage().count("may not list pods") for record in caplog.records] == [1]
    assert "continuing with the known objects, retrying every 20 s" in caplog.text
    # A server that has not loaded its rules yet refuses every request for a moment.
    assert fake_time.pauses == pytest.approx([0.6, *[1.0] * 5, 22.0, 22.0, 22.0])


async def test_temporary_refusal_of_an_optional_resource_loses_no_object(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    no = refusal(403, "Forbidden", "may not list pods")
    server.on("GET", PATH, no, no, page(10, thing("a", 9)))
    server.on("GET", PATH, no, Watch((event("ADDED", thing("b", 11)),)), watch=True)
    async with reflecting(client, sink, fake_time, optional=True):
        lines = await sink.until("upsert b uid-b")
    assert lines == ["upsert a uid-a", "synced", "upsert b uid-b"]
    assert fake_time.pauses == [1.0, 1.0, 1.0]
    assert [record.levelname for record in caplog.records if "may not list" in record.getMessage()] == [
        "WARNING"
    ] * 2
    assert "allowed again" in caplog.text


async def test_lists_replace_watches_where_no_watch_lasts(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    """A balancer that does not stream, say."""
    server.on("GET", PATH, page(10), page(11, thing("a", 11)), page(12, thing("a", 11), thing("b", 12)))
    server.on("GET", PATH, Watch(end="clean"), watch=True)
    async with reflecting(client, sink, fake_time) as reflector:
        lines = await sink.until("upsert b uid-b")
        assert reflector.state is not ReflectorState.WATCHING
    assert lines == ["synced", "upsert a uid-a", "synced", "upsert b uid-b"]
    assert len(fake_time.pauses) == 4  # three watches that ended at once, then one after each list


async def test_a_watch_that_ends_at_once_is_no_news(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    lags: list[float] = []
    rest = fake_time.sleep
    known: list[Reflector[Pod]] = []

    async def sleep(seconds: float) -> None:
        lags.extend(reflector.lag for reflector in known)
        await rest(seconds)

    monkeypatch.setattr(fake_time, "sleep", sleep)
    server.on("GET", PATH, page(10), page(11, thing("a", 11)))
    server.on("GET", PATH, Watch(end="clean"), watch=True)
    async with reflecting(client, sink, fake_time) as reflector:
        known.append(reflector)
        await sink.until("upsert a uid-a")
    # The last news is the list; from then on the age grows until the next list.
    assert lags[:3] == pytest.approx([0.0, *itertools.accumulate(fake_time.pauses[:2])])


async def test_single_broken_stream_is_not_logged(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.on("GET", PATH, page(10))
    news = event("ADDED", thing("a", 11))
    server.on(
        "GET",
        PATH,
        Watch((news,), end="cut"),
        Hangup(),
        Hangup(),
        Watch((event("ADDED", thing("b", 12)),)),
        watch=True,
    )
    async with reflecting(client, sink, fake_time):
        await sink.until("upsert b uid-b")
    told = [record.getMessage() for record in caplog.records if "next try" in record.getMessage()]
    assert len(told) == 2  # of the second and third in a row


@pytest.mark.parametrize("optional", [True, False])
async def test_only_an_optional_resource_counts_as_synced_when_forbidden(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime, optional: bool
) -> None:
    server.on("GET", PATH, refusal(403, "Forbidden"))
    async with reflecting(client, sink, fake_time, optional=optional) as reflector:
        # (It is not at the first word.)
        await sink.when(lambda: reflector.state is ReflectorState.FORBIDDEN)
        assert reflector.synced.is_set() is optional
        assert sink.lines == (["synced"] if optional else [])


async def test_a_version_from_the_future_is_cured_by_a_list(
    server: StubServer, client: KubeClient, sink: Log, fake_time: FakeTime
) -> None:
    future = refusal(504, "Timeout", "Too large resource version", causes=[{"reason": "ResourceVersionTooLarge"}])
    server.on("GET", PATH, page(1000, thing("a", 900, color="lost")), page(500, thing("a", 400, color="restored")))
    server.on("GET", PATH, future, future, future, Watch((event("ADDED", thing("b", 501)),)), watch=True)
    async with reflecting(client, sink, fake_time):
        lines = await sink.until("upsert b uid-b")
    assert lines == [
        "upsert a uid-a lost",
        "synced",
        "upsert a uid-a restored",
        "synced",
        "upsert b uid-b",
    ]


async def test_exception_of_the_sink_is_logged_once_and_loses_only_that_change(
    server: StubServer, client: KubeClient, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def broken(change: Change[Any]) -> None:
        if isinstance(change, Upsert):
            if change.key[1] == "a":
                raise LookupError("a bug of ours")
            seen.append(change.key[1])

    counted: list[str] = []
    server.on("GET", PATH, page(10, thing("a", 9), thing("b", 9)), page(20, thing("a", 19), thing("c", 19)))
    server.on("GET", PATH, Watch((GONE,), end="clean"), Watch((), end="hang"), watch=True)
    reflector = Reflector(
        client,
        PODS,
        json.loads,
        broken,
        clock=fake_time.clock,
        sleep=fake_time.sleep,
        failures=Failures(counted.append),
    )
    task = asyncio.create_task(reflector.run())
    async with asyncio.timeout(60):
        while "c" not in seen:  # noqa: ASYNC110 - the reflector signals no event
            await asyncio.sleep(0.01)
    task.cancel()
    assert (seen, counted) == (["b", "c"], ["intake", "intake"])
    assert len([record for record in caplog.records if "a bug of ours" in record.getMessage()]) == 1


async def test_an_item_that_is_nested_too_deep_hides_no_other(
    server: StubServer, client: KubeClient, fake_time: FakeTime
) -> None:
    seen: list[Any] = []
    deep = json.dumps(thing("deep", 9))[:-1].encode() + b', "spec": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    items = b",".join((json.dumps(thing("a", 9)).encode(), deep, json.dumps(thing("b", 9)).encode()))
    body = b'{"metadata": {"resourceVersion": "10"}, "items": [' + items + b"]}"
    server.on("GET", PATH, Text(body.decode()))
    server.on("GET", PATH, Watch((), end="hang"), watch=True)
    reflector = Reflector(client, PODS, decode_json, seen.append, clock=fake_time.clock, sleep=fake_time.sleep)
    task = asyncio.create_task(reflector.run())
    async with asyncio.timeout(60):
        await reflector.synced.wait()
    task.cancel()
    told = [(type(change).__name__, change.key[1]) for change in seen if not isinstance(change, Synced)]
    assert told == [("Upsert", "a"), ("Malformed", "deep"), ("Upsert", "b")]


async def test_objects_of_any_shape_can_be_reflected(
    server: StubServer, client: KubeClient, fake_time: FakeTime
) -> None:
    """A dict, and a struct without metadata: the head is found all the same."""

    class Colored(msgspec.Struct):
        color: str

    for decode in (json.loads, msgspec.json.Decoder(Colored).decode):
        changes: list[Change[Any]] = []
        server.on("GET", PATH, Json({"metadata": {"resourceVersion": "3"}, "items": [thing("a", 1, color="red")]}))
        server.on("GET", PATH, Watch((event("DELETED", thing("a", 4, color="red")),)), watch=True)
        reflector = Reflector(client, PODS, decode, changes.append, clock=fake_time.clock, sleep=fake_time.sleep)
        task = asyncio.create_task(reflector.run())
        async with asyncio.timeout(60):
            while len(changes) < 3:  # noqa: ASYNC110 - a plain list has no event
                await asyncio.sleep(0.001)
        task.cancel()
        added, _, deleted = changes
        assert isinstance(added, Upsert)
        assert isinstance(deleted, Delete)
        assert (added.key, added.uid) == (deleted.key, deleted.uid) == (("ns", "a"), "uid-a")


class Away:
    """A server that refuses the next `count` connections of the reflector."""

    def __init__(self, client: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        stream = client.stream_batches

        def stream_batches(path: str, params: Any = None, *, read_timeout: float) -> Any:
            if self.left:
                self.left -= 1
                raise Unreachable("connection refused")
            return stream(path, params, read_timeout=read_timeout)

        monkeypatch.setattr(client, "stream_batches", stream_batches)


async def test_first_answer_after_an_outage_wakes_all_waiting_reflectors(
    server: StubServer,
    client: KubeClient,
    sink: Log,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.on("GET", PATH, page(10, thing("a", 1)))
    server.on("GET", PATH, Watch((event("ADDED", thing("b", 11)),)), watch=True)
    server.on("GET", "/version", Json({}))
    away = Away(client, monkeypatch)
    away.left = 2
    reflectors = [
        Reflector(client, PODS, msgspec.json.Decoder(Pod).decode, sink, sleep=lambda pause: asyncio.sleep(3600))
        for _ in range(2)
    ]
    caplog.set_level(logging.INFO)
    tasks = [asyncio.create_task(each.run()) for each in reflectors]
    try:
        await sink.until("synced", 2)
        await sink.when(lambda: all(each.state is ReflectorState.WAITING for each in reflectors))
        await client.get("/version")
        await sink.until("upsert b uid-b", 2)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    told = [record.getMessage() for record in caplog.records]
    # One line for the outage and one for its end, however many watch.
    assert len([text for text in told if "connection refused" in text]) == 1
    assert len([text for text in told if "answers again" in text]) == 1
    assert len([text for text in told if "is unreachable, all its clients retry" in text]) == 1


@pytest.mark.parametrize("expired", [refusal(410, "Expired"), Watch((GONE,))])
async def test_watch_that_expired_during_an_outage_is_listed_at_once(
    server: StubServer,
    client: KubeClient,
    sink: Log,
    fake_time: FakeTime,
    monkeypatch: pytest.MonkeyPatch,
    expired: Any,
) -> None:
    away = Away(client, monkeypatch)
    server.on("GET", PATH, page(10, thing("a", 1)), page(30, thing("a", 1), thing("b", 25)))
    server.on("GET", PATH, expired, expired, Watch(), watch=True)
    away.left = 6
    async with reflecting(client, sink, fake_time):
        await sink.until("synced", 2)
        waited = list(fake_time.pauses)
        await sink.until("synced", 3)
    assert len(waited) == 6  # for the server, and not for the list
    # Where the server repeats the expiry, pauses grow again.
    assert len(fake_time.pauses) == 7


@pytest.mark.parametrize("expired", [refusal(410, "Expired"), Watch((GONE,))])
async def test_after_that_list_it_watches_and_says_so(
    server: StubServer,
    client: KubeClient,
    sink: Log,
    fake_time: FakeTime,
    monkeypatch: pytest.MonkeyPatch,
    expired: Any,
) -> None:
    away = Away(client, monkeypatch)
    server.on("GET", PATH, page(10), page(30))
    server.on("GET", PATH, expired, Watch((event("ADDED", thing("a", 31)),)), watch=True)
    away.left = 2
    async with reflecting(client, sink, fake_time) as reflector:
        await sink.until("upsert a uid-a")
        assert reflector.state is ReflectorState.WATCHING
        assert reflector.lag == 0.0
