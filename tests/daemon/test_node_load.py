"""Actual load of nodes: read from metrics.k8s.io, averaged, and dropped when it is old."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phalanx.daemon.node_load import Averages, NodeLoads, Sample, measure, sample_of
from phalanx.kube.errors import ConnectionLost
from phalanx.model.events import NodesMeasured
from phalanx.model.node_load import NodeLoad

pytestmark = pytest.mark.asyncio


def item(name: str, cpu: str = "250m", memory: str = "1Gi", at: str = "1970-01-01T00:16:40Z") -> dict[str, Any]:
    return {"metadata": {"name": name}, "timestamp": at, "window": "30s", "usage": {"cpu": cpu, "memory": memory}}


async def test_a_measurement_is_read() -> None:
    assert sample_of(item("n")) == ("n", Sample(1000, 250, 2**30))
    assert sample_of(item("n", cpu="1234567n")) == ("n", Sample(1000, 2, 2**30))
    for wrong in ({}, {"metadata": {"name": "n"}}, item("n", cpu="lots"), None, 3):
        assert sample_of(wrong) is None


async def test_average_covers_the_last_ten_minutes() -> None:
    averages = Averages()
    for at, cpu in ((1000, 100), (1300, 400), (1600, 700)):
        averages.add_sample("n", Sample(at, cpu, 0))
        averages.add_sample("n", Sample(at, cpu, 0))  # the same measurement, asked for twice
    assert averages.changes(1600) == NodesMeasured((NodeLoad("n", 400, 0),))
    assert averages.changes(1601) == NodesMeasured((NodeLoad("n", 550, 0),))


async def test_samples_older_than_five_minutes_are_dropped_at_once() -> None:
    averages = Averages()
    averages.add_sample("n", Sample(1000, 100, 7))
    assert averages.changes(1300) == NodesMeasured((NodeLoad("n", 100, 7),))
    assert averages.changes(1301) == NodesMeasured((), ("n",))
    assert averages.changes(1302) is None


class Metrics:
    """A client that answers, or does not."""

    def __init__(self) -> None:
        self.items: list[Any] | None = []
        self.asked = 0

    async def get(self, path: str) -> Any:
        assert path == "/apis/metrics.k8s.io/v1beta1/nodes"
        self.asked += 1
        if self.items is None:
            raise ConnectionLost("no metrics server")
        return {"items": self.items}


async def test_snapshot_contains_the_current_load() -> None:
    metrics = Metrics()
    metrics.items = [item("a"), item("old", at="1970-01-01T00:01:00Z")]
    assert await measure(metrics) == NodesMeasured((NodeLoad("a", 250, 2**30),))  # type: ignore[arg-type]
    metrics.items = None
    assert await measure(metrics) is None  # type: ignore[arg-type]


async def test_load_is_read_only_while_a_plugin_uses_it_and_failures_are_survived() -> None:
    metrics, told, minds = Metrics(), list[NodesMeasured](), [False]
    loads = NodeLoads(metrics, lambda: minds[0], told.append, lambda: 1000.0, period=0.001)  # type: ignore[arg-type]
    running = asyncio.create_task(loads.run())
    await asyncio.sleep(0.02)
    assert metrics.asked == 0
    metrics.items, minds[0] = None, True
    async with asyncio.timeout(60):
        while metrics.asked < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        assert told == []
        metrics.items = [item("n"), {"odd": 1}]
        while not told:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
    assert told[0] == NodesMeasured((NodeLoad("n", 250, 2**30),))
    running.cancel()
