"""An object whose handling raises is logged once, affects no other object, and ends nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.daemon.observer import Observer
from phalanx.dialects.core import decode_node, decode_pod
from phalanx.dialects.intake import Intake
from phalanx.dialects.reader import decode_object
from phalanx.dialects.warnings import ObjectWarning
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.changes import Delete, Malformed, Synced, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.failures import Failures
from tests.dialects.objects import VOLCANO_QUEUE, X_K8S, group, pod_document

pytestmark = pytest.mark.asyncio


class World:
    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.state, self.intake = ClusterState(), Intake(["phalanx"])
        self.observer = Observer(
            KubeClient(ClusterConfig("http://127.0.0.1:1")),
            self.intake,
            self.state,
            changed=lambda: None,
            pod_seen=lambda pod: None,
            pod_gone=lambda uid: None,
            gang_touched=lambda key: None,
            failures=Failures(lambda part: self.counted.update([part])),
        )

    def pod(self, name: str, **details: Any) -> Upsert[Any]:
        raw = msgspec.json.encode(pod_document(name, **details))
        return Upsert(decode_pod(raw), raw, ("default", name), f"uid-{name}")

    def notices(self) -> list[ObjectWarning]:
        return self.intake.drain_warnings()


def poisons(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, hits: Any) -> None:
    whole = getattr(target, name)

    def fails(*arguments: Any, **more: Any) -> Any:
        if hits(repr(arguments)):
            raise LookupError("a bug of ours")
        return whole(*arguments, **more)

    monkeypatch.setattr(target, name, fails)


async def test_a_pod_that_raises_still_occupies_its_node(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    poisons(monkeypatch, world.intake, "pod", lambda text: "'bad'" in text)
    tell = world.observer.pods._deliver
    node = msgspec.json.encode({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}})
    world.observer.nodes._deliver(Upsert(decode_node(node), node, ("", "n"), "u"))
    for _ in range(3):
        for name in ("good", "bad", "well"):
            tell(world.pod(name, node="n", phase="Running"))
    assert set(world.state.pods) == {"uid-good", "uid-bad", "uid-well"}
    assert len(world.state.pods.on(world.state.nodes.row("n"))) == 3
    assert not world.state.pods["uid-bad"].pod.preemptable
    assert world.counted == {"intake": 3}
    assert len([record for record in caplog.records if "a bug of ours" in record.getMessage()]) == 1
    assert [(notice.about.name, notice.reason) for notice in world.notices()].count(("bad", "NotTakenIn")) == 1


@pytest.mark.parametrize("method", ["pod_removed", "malformed_pod", "node", "node_removed"])
async def test_no_handler_lets_it_through(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    world = World()
    poisons(monkeypatch, world.intake, method, lambda text: True)
    pods, nodes = world.observer.pods._deliver, world.observer.nodes._deliver
    node = msgspec.json.encode({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8"}}})
    pods(world.pod("p", node="n"))
    pods(Malformed(("default", "p"), "uid-p", "it is no JSON", b""))
    pods(Delete(("default", "p"), "uid-p"))
    nodes(Upsert(decode_node(node), node, ("", "n"), "u"))
    nodes(Malformed(("", "n"), "u", "it is no JSON", b""))
    nodes(Delete(("", "n"), "u"))
    nodes(Synced())
    assert "uid-p" not in world.state.pods
    assert world.counted["intake"] >= 1


@pytest.mark.parametrize(("kind", "method"), [(X_K8S, "group"), (VOLCANO_QUEUE, "account")])
@pytest.mark.parametrize("prefix", ["", "malformed_"])
async def test_a_custom_object_that_raises_harms_no_other(
    monkeypatch: pytest.MonkeyPatch, kind: Any, method: str, prefix: str
) -> None:
    world = World()
    poisons(monkeypatch, world.intake, f"{prefix}{method}", lambda text: "'bad'" in text)
    poisons(monkeypatch, world.intake, f"{method}_removed", lambda text: "'bad'" in text)
    make = world.observer.kinds._group_sink if method == "group" else world.observer.kinds._account_sink
    tell = make(kind)
    for name in ("bad", "good"):
        raw = msgspec.json.encode(group(name))
        tell(Upsert(decode_object(raw), raw, ("default", name), "u"))
        tell(Malformed(("default", name), "u", "it is no JSON", raw))
    for name in ("bad", "good"):
        tell(Delete(("default", name), "u"))
    assert world.counted["intake"] >= 1


async def test_a_fact_that_the_state_cannot_take_does_not_hide_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    poisons(
        monkeypatch, world.state.pods, "observe", lambda text: "'bad'" in text and "cannot be processed" not in text
    )
    for name in ("bad", "good"):
        world.observer.pods._deliver(world.pod(name, node="n", phase="Running"))
    assert set(world.state.pods) == {"uid-bad", "uid-good"}
    assert world.counted["state"] == 1


async def test_task_that_raises_is_restarted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, pauses = 0, []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def run() -> None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise LookupError("a bug of ours")

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await Failures().keep_running("a task", run)
    assert tries == 4
    assert pauses == sorted(pauses)
    assert len([record for record in caplog.records if "a bug of ours" in record.getMessage()]) == 1


async def test_a_task_that_is_cancelled_ends() -> None:
    async def run() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Failures().keep_running("a task", run)
