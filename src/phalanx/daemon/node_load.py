"""Measured load of nodes from metrics.k8s.io, polled while the policy uses it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from phalanx.dialects.times import parse_time
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.events import NodesMeasured
from phalanx.model.node_load import NodeLoad
from phalanx.model.resources import CPU, MEMORY, parse_amount
from phalanx.model.text.quantity import QuantityError

log = logging.getLogger(__name__)

PATH = "/apis/metrics.k8s.io/v1beta1/nodes"
PERIOD = 30.0
# Seconds over which usage is averaged, and after which a measurement is too old to use.
WINDOW = 600
STALE = 300


class Sample(msgspec.Struct, frozen=True):
    """One measurement of a node's load; `at` is in seconds since the epoch."""

    at: int
    cpu: int
    memory: int


class Averages:
    """Average load of each node over the last ten minutes."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[Sample]] = {}
        self._published: set[str] = set()

    def add_sample(self, node: str, sample: Sample) -> None:
        """Add a measurement of a node's load; ignore a repeat of the last one."""
        samples = self._samples.setdefault(node, deque())
        if not samples or samples[-1].at < sample.at:
            samples.append(sample)

    def changes(self, now: float) -> NodesMeasured | None:
        """Return the average loads of nodes as of `now`; None if none is known and none was known before."""
        loads = []
        for node, samples in list(self._samples.items()):
            while samples and samples[0].at < now - WINDOW:
                samples.popleft()
            if not samples or samples[-1].at < now - STALE:
                del self._samples[node]
                continue
            count = len(samples)
            cpu = sum(sample.cpu for sample in samples) // count
            loads.append(NodeLoad(node, cpu, sum(sample.memory for sample in samples) // count))
        known = {load.node for load in loads}
        gone, self._published = sorted(self._published - known), known
        return NodesMeasured(tuple(loads), tuple(gone)) if loads or gone else None


class NodeLoads:
    """Poll of the load of nodes every PERIOD seconds while `wanted`.

    The first failure and the first success after failures are logged.
    """

    def __init__(
        self,
        client: KubeClient,
        wanted: Callable[[], bool],
        publish: Callable[[NodesMeasured], None],
        clock: Callable[[], float],
        period: float = PERIOD,
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._publish = publish
        self._clock = clock
        self._period = period
        self._averages = Averages()
        self._failing = ""

    async def run(self) -> None:
        """Poll the load of nodes until cancelled."""
        while True:
            if self._wanted():
                await self._poll()
            news = self._averages.changes(self._clock())
            if news is not None:
                self._publish(news)
            await asyncio.sleep(self._period)

    async def _poll(self) -> None:
        try:
            answer: Any = await self._client.get(PATH)
        except (ApiError, ConnectionLost) as error:
            if self._failing != str(error):
                self._failing = str(error)
                log.warning("the measured load of nodes is unknown (plugin usage has no effect): %s", error)
            return
        if self._failing:
            self._failing = ""
            log.info("the measured load of nodes is known again")
        for item in _items(answer):
            measurement = sample_of(item)
            if measurement is not None:
                self._averages.add_sample(*measurement)


async def measure(client: KubeClient) -> NodesMeasured | None:
    """Return the current load of the nodes; None if metrics.k8s.io does not answer."""
    averages = Averages()
    try:
        answer: Any = await client.get(PATH)
    except (ApiError, ConnectionLost):
        return None
    latest = 0
    for item in _items(answer):
        measurement = sample_of(item)
        if measurement is not None:
            averages.add_sample(*measurement)
            latest = max(latest, measurement[1].at)
    return averages.changes(latest)


def _items(answer: Any) -> list[Any]:
    items = answer.get("items") if isinstance(answer, dict) else None
    return items if isinstance(items, list) else []


def sample_of(item: Any) -> tuple[str, Sample] | None:
    """Return the node name and the sample of a NodeMetrics object; None for an unreadable object."""
    try:
        usage = item["usage"]
        cpu, memory = parse_amount(CPU, usage["cpu"]), parse_amount(MEMORY, usage["memory"])
        at = parse_time(str(item["timestamp"]))
        return str(item["metadata"]["name"]), Sample(at, max(0, cpu), max(0, memory))
    except (KeyError, TypeError, QuantityError):
        return None
