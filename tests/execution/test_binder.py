"""Bindings: handling of every answer (docs/rules/kubernetes_native.md, B3 and B4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from phalanx.dialects.gangs.plan_marks import encode_mark
from phalanx.dialects.signatures import Signer
from phalanx.execution.binder import Binder, BindOutcome, BindResult
from phalanx.execution.writes import WritePool
from phalanx.kube.errors import ConfigError, ConnectionLost, Unreachable
from phalanx.kube.http.transport import HttpRequest
from phalanx.kube.retry import Backoff
from phalanx.model.decisions import Bind
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark
from tests.execution.podserver import PodServer

MARK = PlanMark("c1-1000", 4, 1000)
BIND = Bind("uid-p", "ns", "p", "n1", GangKey("ns", "g"), MARK)
SIGNER = Signer((("1", b"k" * 32),))


class World:
    """A server with one pod p, and a binder on it."""

    def __init__(self) -> None:
        self.server = PodServer()
        self.results: list[BindResult] = []
        self.pauses: list[float] = []
        self.pool = WritePool(concurrency=4)
        self.binder = Binder(
            self.server.client(), self.pool, self.results.append, SIGNER, attempts=4, backoff=self._backoff
        )
        self.pod = self.server.add("p")

    def _backoff(self) -> Backoff:
        world = self

        class Noted(Backoff):
            def next(self, retry_after: float | None = None) -> float:
                world.pauses.append(super().next(retry_after))
                return 0.0

        return Noted(base=0.1, cap=5.0, random=lambda: 1.0)

    async def bind(self, bind: Bind = BIND, **more: Any) -> BindResult:
        self.binder.submit([bind], **more)
        async with asyncio.timeout(5):
            await self.pool.drained()
        assert self.binder.in_flight == 0
        assert len(self.results) == 1, "each binding is reported once"
        return self.results[0]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.pool.close()


async def test_created_binding_is_bound(world: World) -> None:
    sent: list[dict[str, Any]] = []
    world.server.before = lambda call: sent.append(msgspec.json.decode(call.body or b"{}"))
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert world.server.calls == ["POST p/binding"]
    assert sent == [
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": "p",
                "namespace": "ns",
                "uid": "uid-p",
                "annotations": {"phalanx.dev/gang-plan": encode_mark(MARK, SIGNER, "uid-p", GangKey("ns", "g"))},
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        }
    ]


async def test_binding_of_a_single_pod_has_no_plan_mark(world: World) -> None:
    await world.bind(Bind("uid-p", "ns", "p", "n1"))
    assert "phalanx.dev/gang-plan" not in world.pod["metadata"].get("annotations", {})


async def test_conflict_with_our_own_lost_request_counts_as_bound(world: World) -> None:
    world.pod["spec"]["nodeName"] = "n1"
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert world.server.calls == ["POST p/binding", "GET p"]


def on_another_node(pod: dict[str, Any]) -> None:
    pod["spec"]["nodeName"] = "n2"


def replaced(pod: dict[str, Any]) -> None:
    pod["metadata"]["uid"] = "uid-of-its-successor"


def terminating(pod: dict[str, Any]) -> None:
    pod["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"


def gated(pod: dict[str, Any]) -> None:
    pod["spec"]["schedulingGates"] = [{"name": "example.com/hold"}]


@pytest.mark.parametrize(
    ("state", "outcome", "words"),
    [
        (on_another_node, BindOutcome.MOVED, "bound to node n2"),
        (replaced, BindOutcome.MOVED, "replaced"),
        (terminating, BindOutcome.MOVED, "being deleted"),
        (gated, BindOutcome.REFUSED, "schedulingGates"),
    ],
)
async def test_conflict_is_resolved_by_reading_the_pod(
    world: World, state: Callable[[dict[str, Any]], None], outcome: BindOutcome, words: str
) -> None:
    state(world.pod)
    result = await world.bind()
    assert result.outcome is outcome
    assert words in result.message
    assert world.server.calls == ["POST p/binding", "GET p"]


async def test_transient_conflict_is_retried(world: World) -> None:
    world.server.fail("POST", "/binding", status=409, times=2)
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert world.server.node_of("p") == "n1"


async def test_repeated_conflicts_end_as_a_rejection(world: World) -> None:
    world.server.fail("POST", "/binding", status=409, times=100)
    assert (await world.bind()).outcome is BindOutcome.REFUSED
    assert world.server.calls.count("POST p/binding") == 4


async def test_deleted_pod_counts_as_moved(world: World) -> None:
    world.server.pods.clear()
    assert (await world.bind()).outcome is BindOutcome.MOVED


async def test_not_found_from_a_proxy_does_not_count_as_a_deleted_pod(world: World) -> None:
    world.server.fail("POST", "/binding", status=404, body=b"<html>no backend</html>")
    assert (await world.bind()).outcome is BindOutcome.BOUND


@pytest.mark.parametrize("code", [400, 401, 403, 413, 422])
async def test_definite_rejection_is_not_retried(world: World, code: int) -> None:
    world.server.fail("POST", "/binding", status=code, times=100)
    result = await world.bind()
    assert result.outcome is BindOutcome.REFUSED
    assert str(code) in result.message
    assert world.server.calls == ["POST p/binding"]


async def test_too_many_requests_waits_for_the_stated_time(world: World) -> None:
    world.server.fail("POST", "/binding", status=429, retry_after="7")
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert world.server.calls == ["POST p/binding", "POST p/binding"]
    assert world.pauses[0] >= 7


async def test_repeated_too_many_requests_end_as_a_rejection(world: World) -> None:
    world.server.fail("POST", "/binding", status=429, times=100)
    assert (await world.bind()).outcome is BindOutcome.REFUSED
    assert world.server.calls == ["POST p/binding"] * 4


@pytest.mark.parametrize("code", [500, 502, 503, 504])
@pytest.mark.parametrize("after_write", [False, True])
async def test_server_error_leaves_the_result_of_a_binding_unknown(
    world: World, code: int, after_write: bool
) -> None:
    world.server.fail("POST", "/binding", status=code, after_write=after_write)
    assert (await world.bind()).outcome is BindOutcome.BOUND
    posts = world.server.calls.count("POST p/binding")
    assert posts == (1 if after_write else 2)
    assert world.server.calls[:2] == ["POST p/binding", "GET p"]


@pytest.mark.parametrize("after_write", [False, True])
async def test_lost_connection_leaves_the_result_of_a_binding_unknown(world: World, after_write: bool) -> None:
    world.server.fail("POST", "/binding", error=ConnectionLost("cut"), after_write=after_write)
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert world.server.calls.count("POST p/binding") == (1 if after_write else 2)
    assert world.server.calls[1] == "GET p"


async def test_unknown_result_is_retried_until_it_is_known(world: World) -> None:
    """While the result of the binding is unknown, no other decision about the pod is possible."""
    world.server.fail("POST", "/binding", error=ConnectionLost("cut"), after_write=True)
    world.server.fail("GET", "/p", error=Unreachable("down"), times=20)
    world.server.fail("GET", "/p", status=503, times=20)
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert world.server.calls.count("POST p/binding") == 1
    assert world.server.calls.count("GET p") == 41


async def test_unreachable_server_is_waited_for(world: World) -> None:
    world.server.fail("POST", "/binding", error=Unreachable("connection refused"), times=30)
    assert (await world.bind()).outcome is BindOutcome.BOUND
    assert "GET p" not in world.server.calls


async def test_credentials_that_cannot_be_renewed_are_waited_for(world: World) -> None:
    world.server.fail("POST", "/binding", error=ConfigError("the plugin fails"), times=3)
    assert (await world.bind()).outcome is BindOutcome.BOUND


async def test_guard_is_checked_before_each_attempt(world: World) -> None:
    world.server.fail("POST", "/binding", status=503)
    objections = iter([None, "node n1 is gone"])
    result = await world.bind(guard=lambda bind: next(objections))
    assert result.outcome is BindOutcome.REFUSED
    assert result.message == "node n1 is gone"
    assert world.server.calls == ["POST p/binding", "GET p"]
    assert world.server.node_of("p") == ""


async def test_guard_is_not_checked_while_the_last_result_is_unknown(world: World) -> None:
    """A node deleted before the answer arrives does not undo the binding."""
    world.server.fail("POST", "/binding", error=ConnectionLost("cut"), after_write=True)
    world.server.fail("GET", "/p", error=ConnectionLost("cut"), times=2)
    objections = iter([None, "node n1 is gone"])
    assert (await world.bind(guard=lambda bind: next(objections))).outcome is BindOutcome.BOUND


async def test_bug_in_a_binding_is_a_rejection_and_not_a_hang(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(bind: Bind) -> str | None:
        raise ZeroDivisionError("a bug")

    result = await world.bind(guard=broken)
    assert result.outcome is BindOutcome.REFUSED
    assert "a bug" in result.message
    assert "failed unexpectedly" in caplog.text


async def test_failing_bindings_do_not_block_bindings_that_would_succeed(world: World) -> None:
    """Four workers, four pods behind a webhook that is down: the fifth is bound in its first attempt."""
    pods = [world.server.add(f"bad-{number}") for number in range(4)]
    world.server.add("good")
    order: list[str] = []

    def note(call: HttpRequest) -> None:
        if call.method == "POST":
            order.append(call.target.split("/")[-2])

    world.server.before = note
    for number in range(4):
        world.server.fail("POST", f"/bad-{number}/binding", status=500, times=2)
    names = [pod["metadata"]["name"] for pod in pods] + ["good"]
    world.binder.submit([Bind(f"uid-{name}", "ns", name, "n1") for name in names])
    async with asyncio.timeout(5):
        await world.pool.drained()
    assert order.index("good") == 4
    assert all(result.outcome is BindOutcome.BOUND for result in world.results)
