"""One leader at a time, by the local clock, with a lease that is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.kube.lease import LeaderElector, LeadershipLost
from phalanx.kube.lease_thread import LeaderThread
from tests.clocks import skip_time

from .conftest import FakeTime
from .stub_server import Hangup, Json, Recorded, Reply, StubServer, refusal

COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
PATH = f"{COLLECTION}/phalanx"
NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


class LeaseStore:
    """The one lease, with optimistic concurrency."""

    def __init__(self, server: StubServer) -> None:
        self.server = server
        self.version = 0
        self.spec: dict[str, Any] | None = None
        self.fault: Reply | None = None
        self.writes = 0
        for method, path, reply in (
            ("GET", PATH, self._get),
            ("PUT", PATH, self._put),
            ("POST", COLLECTION, self._post),
        ):
            server.on(method, path, self._or_fault(reply))

    def held_by(self, holder: str, **spec: Any) -> None:
        self.version += 1
        self.spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 4, **spec}

    def _or_fault(self, reply: Callable[[Recorded], Json]) -> Callable[[Recorded], Any]:
        return lambda request: self.fault if self.fault is not None else reply(request)

    def _lease(self) -> Json:
        metadata = {"name": "phalanx", "resourceVersion": str(self.version), "labels": {"keep": "me"}}
        return Json({"metadata": metadata, "spec": self.spec})

    def _get(self, request: Recorded) -> Json:
        return self._lease() if self.spec is not None else refusal(404, "NotFound")

    def _put(self, request: Recorded) -> Json:
        if request.json["metadata"]["resourceVersion"] != str(self.version):
            return refusal(409, "Conflict")
        assert request.json["metadata"]["labels"] == {"keep": "me"}
        return self._store(request)

    def _post(self, request: Recorded) -> Json:
        return refusal(409, "AlreadyExists") if self.spec is not None else self._store(request)

    def _store(self, request: Recorded) -> Json:
        self.version += 1
        self.writes += 1
        self.spec = request.json["spec"]
        return self._lease()


@pytest.fixture
def store(server: StubServer) -> LeaseStore:
    return LeaseStore(server)


class Steps:
    """Time for one elector: a sleep advances the clock and then runs the action planned for that moment."""

    def __init__(self, time: FakeTime) -> None:
        self.time = time
        self.plans: list[Callable[[], object]] = []
        self.over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if not self.plans:
            self.over.set()
            await asyncio.Event().wait()  # for ever
        await self.time.sleep(seconds)
        self.plans.pop(0)()


@pytest.fixture
def steps(fake_time: FakeTime) -> Steps:
    return Steps(fake_time)


def nothing() -> None:
    pass


def elector(client: KubeClient, steps: Steps, identity: str = "me") -> LeaderElector:
    return LeaderElector(
        client,
        "phalanx",
        identity=identity,
        clock=steps.time.clock,
        wall_clock=lambda: NOW + steps.time.now - 1000,
        sleep=steps.sleep,
        random=lambda: 0.5,
    )


async def test_creates_the_lease_and_leads(client: KubeClient, store: LeaseStore, steps: Steps) -> None:
    me = elector(client, steps)
    assert not me.is_leader()
    task = asyncio.create_task(me.run())
    await asyncio.wait_for(me.leading.wait(), 60)
    assert me.is_leader()
    assert store.spec == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_renews_every_two_seconds_and_keeps_the_time_of_acquisition(
    client: KubeClient, store: LeaseStore, steps: Steps, server: StubServer
) -> None:
    steps.plans = [nothing] * 5
    task = asyncio.create_task(elector(client, steps).run())
    await asyncio.wait_for(steps.over.wait(), 60)
    assert store.writes == 6
    assert store.spec is not None
    assert store.spec["acquireTime"] == "2026-01-01T00:00:00.000000Z"
    assert store.spec["renewTime"] == "2026-01-01T00:00:10.000000Z"
    assert store.spec["leaseTransitions"] == 0
    assert len(server.seen("GET", PATH)) == 1  # a renewal is one request
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_the_end_gives_the_lease_back(client: KubeClient, store: LeaseStore, steps: Steps) -> None:
    me = elector(client, steps)
    task = asyncio.create_task(me.run())
    await asyncio.wait_for(me.leading.wait(), 60)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert store.spec is not None
    assert (store.spec["holderIdentity"], store.spec["leaseDurationSeconds"]) == ("", 1)
    assert not me.is_leader()
    assert not me.leading.is_set()
    next_one = elector(client, steps, "next")
    task = asyncio.create_task(next_one.run())
    await asyncio.wait_for(next_one.leading.wait(), 60)
    assert steps.time.pauses == []  # no replica had to wait
    assert store.spec["leaseTransitions"] == 1
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("disturbance", ["touched", "answer lost"])
async def test_the_lease_is_given_back_even_when_it_is_not_as_we_know_it(
    client: KubeClient, store: LeaseStore, steps: Steps, disturbance: str
) -> None:
    def disturb() -> None:
        if disturbance == "touched":
            return

        def carried_out_and_lost(request: Recorded) -> Hangup:
            store.server.on("PUT", PATH, store._put)
            store._put(request)
            return Hangup()

        store.server.on("PUT", PATH, carried_out_and_lost)

    me = elector(client, steps)
    steps.plans = [disturb]
    task = asyncio.create_task(me.run())
    await asyncio.wait_for(steps.over.wait(), 60)
    if disturbance == "touched":
        store.version += 1
    assert me.is_leader()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert store.spec is not None
    assert store.spec["holderIdentity"] == ""


async def test_trust_counts_from_before_the_renewal_was_sent(
    client: KubeClient, store: LeaseStore, steps: Steps
) -> None:
    def slow(request: Recorded) -> Json:
        steps.time.now += 4
        return store._post(request)

    store.server.on("POST", COLLECTION, slow)
    me = elector(client, steps)
    task = asyncio.create_task(me.run())
    await asyncio.wait_for(me.leading.wait(), 60)
    assert me.is_leader(margin=5)
    assert not me.is_leader(margin=6)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_dead_holder_is_replaced_fifteen_seconds_after_its_last_sign_of_life(
    client: KubeClient, store: LeaseStore, steps: Steps
) -> None:
    # The renewTime of another machine's clock is a day ahead and must not matter.
    store.held_by("dead", renewTime="2026-01-02T00:00:00.000000Z")
    steps.plans = [nothing, lambda: store.held_by("dead"), *[nothing] * 10]
    me = elector(client, steps)
    task = asyncio.create_task(me.run())
    await asyncio.wait_for(me.leading.wait(), 60)
    # Tries every 3.2 s (2 s and half of 1.2 times as much): seen alive at 6.4 s, so not before 21.4 s, which is
    # the try at 22.4 s.
    assert steps.time.pauses.count(3.2) == 7
    assert store.spec is not None
    assert store.spec["holderIdentity"] == "me"
    assert store.spec["leaseTransitions"] == 5
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_lost_race_is_lost(client: KubeClient, store: LeaseStore, steps: Steps) -> None:
    me = elector(client, steps)
    original = store._post

    def raced(request: Recorded) -> Json:
        store.held_by("faster")
        return original(request)

    store.server.on("POST", COLLECTION, raced)
    task = asyncio.create_task(me.run())
    steps.plans = [nothing]
    await asyncio.wait_for(steps.over.wait(), 60)
    assert me.holder == "faster"
    assert not me.is_leader()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert store.spec is not None
    assert store.spec["holderIdentity"] == "faster"  # and is not given back by us


@pytest.mark.parametrize("fault", [refusal(500, "InternalError"), refusal(409, "Conflict")])
async def test_leader_that_cannot_renew_stops_before_a_standby_can_start(
    client: KubeClient, store: LeaseStore, steps: Steps, fault: Json
) -> None:
    me = elector(client, steps)
    led: list[tuple[float, bool]] = []

    def look() -> None:
        store.fault = fault
        led.append((steps.time.now - 1000, me.is_leader()))

    steps.plans = [look] * 20
    with pytest.raises(LeadershipLost, match="not renewed within 10 s"):
        await asyncio.wait_for(me.run(), 60)
    assert led == [(2.0, True), (4.0, True), (6.0, True), (8.0, True), (10.0, False)]
    assert not me.leading.is_set()


async def test_leader_that_could_not_renew_logs_its_own_failure_and_no_other_holder(
    client: KubeClient, store: LeaseStore, steps: Steps
) -> None:
    steps.plans = [lambda: setattr(store, "fault", refusal(500, "InternalError")), *[nothing] * 20]
    with pytest.raises(LeadershipLost) as lost:
        await asyncio.wait_for(elector(client, steps).run(), 60)
    assert lost.value.because == "the lease was lost: it could not be renewed within 10 s"


async def test_leader_that_wakes_after_expiry_reads_the_current_holder(
    client: KubeClient, store: LeaseStore, steps: Steps
) -> None:
    def frozen() -> None:
        store.held_by("next")
        steps.time.now += 60

    steps.plans = [frozen]
    with pytest.raises(LeadershipLost) as lost:
        await asyncio.wait_for(elector(client, steps).run(), 60)
    assert lost.value.because == "the lease was lost to another replica: next holds it"
    assert store.writes == 1


async def test_missing_answer_is_logged_in_words(
    client: KubeClient, store: LeaseStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hangs(*_: Any) -> Any:
        await asyncio.Event().wait()

    me = LeaderElector(
        client,
        "phalanx",
        identity="me",
        lease_duration=90,
        renew_deadline=60,
        retry_period=5,
        clock=lambda: asyncio.get_running_loop().time(),
    )
    task = asyncio.create_task(me.run())
    await asyncio.wait_for(me.leading.wait(), 60)
    for verb in ("replace", "get"):
        monkeypatch.setattr(client, verb, hangs)
    while not task.done():
        skip_time(1)
        for _ in range(5):
            await asyncio.sleep(0)
    with pytest.raises(LeadershipLost, match=r"not renewed within 60 s"):
        await task
    assert "leases/phalanx: no answer in 30 s" in caplog.text


async def test_repeated_failure_is_logged_once(
    client: KubeClient, store: LeaseStore, steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    """An elector without the right to the lease retries every two seconds."""
    store.fault = refusal(403, "Forbidden")
    steps.plans = [
        nothing,
        nothing,
        nothing,
        lambda: setattr(store, "fault", refusal(500, "InternalError")),
        nothing,
    ]
    task = asyncio.create_task(elector(client, steps).run())
    await asyncio.wait_for(steps.over.wait(), 60)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [("403" in each, "500" in each) for each in told] == [(True, False), (False, True)]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_short_outage_is_survived(client: KubeClient, store: LeaseStore, steps: Steps) -> None:
    me = elector(client, steps)

    def fault(reply: Reply | None) -> Callable[[], None]:
        return lambda: setattr(store, "fault", reply)

    steps.plans = [fault(refusal(500, "InternalError")), nothing, nothing, fault(None), nothing]
    task = asyncio.create_task(me.run())
    await asyncio.wait_for(steps.over.wait(), 60)
    assert store.writes == 3
    assert me.is_leader(margin=9)
    assert not me.is_leader(margin=10)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_lease_that_was_taken_away_ends_the_leadership_at_once(
    client: KubeClient, store: LeaseStore, steps: Steps
) -> None:
    me = elector(client, steps)
    steps.plans = [lambda: store.held_by("usurper"), nothing]
    with pytest.raises(LeadershipLost, match="now held by usurper"):
        await asyncio.wait_for(me.run(), 60)
    assert not me.is_leader()
    assert store.spec is not None
    assert store.spec["holderIdentity"] == "usurper"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"renew_deadline": 15}, "must exceed the renew deadline"),
        ({"retry_period": 5}, "2.2 retry periods of 5 s"),
        ({"lease_duration": 15.5}, "must be whole seconds"),
        ({"identity": ""}, "must not be empty"),
    ],
)
async def test_timings_that_cannot_be_safe_are_refused(
    client: KubeClient, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        LeaderElector(client, "phalanx", **{"identity": "me", **options})


async def test_on_its_own_thread_it_leads_and_gives_back(server: StubServer, store: LeaseStore) -> None:
    thread = LeaderThread(
        ClusterConfig(server.url), lambda client: LeaderElector(client, "phalanx", identity="thread")
    )
    assert not thread.is_leader()
    thread.start()
    await asyncio.wait_for(asyncio.wrap_future(thread.leading), 60)
    assert thread.is_leader()
    await thread.stop()
    assert not thread.is_leader()
    assert thread.ended.result(0) is None
    assert store.spec is not None
    assert store.spec["holderIdentity"] == ""


async def test_loss_of_the_lease_on_its_own_thread_is_reported(server: StubServer, store: LeaseStore) -> None:
    thread = LeaderThread(
        ClusterConfig(server.url),
        lambda client: LeaderElector(
            client, "phalanx", identity="thread", lease_duration=90, renew_deadline=60, retry_period=0.02
        ),
    )
    thread.start()
    await asyncio.wait_for(asyncio.wrap_future(thread.leading), 60)
    store.held_by("usurper")
    with pytest.raises(LeadershipLost, match="usurper"):
        await asyncio.wait_for(asyncio.wrap_future(thread.ended), 60)
    assert not thread.is_leader()
    await thread.stop()


async def test_a_thread_stopped_before_it_leads_ends(server: StubServer, store: LeaseStore) -> None:
    store.held_by("other")
    thread = LeaderThread(
        ClusterConfig(server.url), lambda client: LeaderElector(client, "phalanx", identity="thread")
    )
    thread.start()
    await thread.stop()
    assert thread.ended.result(0) is None
    assert thread.leading.cancelled()


async def test_cancelled_wait_for_the_end_does_not_prevent_the_release(
    server: StubServer, store: LeaseStore
) -> None:
    thread = LeaderThread(
        ClusterConfig(server.url),
        lambda client: LeaderElector(
            client, "phalanx", identity="thread", lease_duration=90, renew_deadline=60, retry_period=0.02
        ),
    )
    thread.start()
    await asyncio.wait_for(asyncio.wrap_future(thread.leading), 60)
    impatient = asyncio.wrap_future(thread.ended)
    impatient.cancel()
    await asyncio.sleep(0)
    store.held_by("usurper")
    with pytest.raises(LeadershipLost, match="usurper"):
        await asyncio.wait_for(asyncio.wrap_future(thread.ended), 60)
    await thread.stop()
