"""Asks metrics.k8s.io what nodes really use, as long as the policy minds."""

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
# Averages go back so far; what is older than STALE says nothing about a node any more. In seconds.
WINDOW = 600
STALE = 300


class Sample(msgspec.Struct, frozen=True):
    """One measurement; `at` is in seconds since the epoch."""

    at: int
    cpu: int
    memory: int


class Averages:
    """What each node used on average over the last ten minutes, from what was measured of it."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[Sample]] = {}
        self._told: set[str] = set()

    def add_sample(self, node: str, sample: Sample) -> None:
        """A repeat of the last measurement is none."""
        samples = self._samples.setdefault(node, deque())
        if not samples or samples[-1].at < sample.at:
            samples.append(sample)

    def changes(self, now: float) -> NodesMeasured | None:
        """What is to be known as of `now`; None where nobody was and nobody is known."""
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
        gone, self._told = sorted(self._told - known), known
        return NodesMeasured(tuple(loads), tuple(gone)) if loads or gone else None


class NodeLoads:
    """Polls every PERIOD seconds while `wanted`; says once when it cannot, and once when it can again."""

    def __init__(
        self,
        client: KubeClient,
        wanted: Callable[[], bool],
        tell: Callable[[NodesMeasured], None],
        clock: Callable[[], float],
        period: float = PERIOD,
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._tell = tell
        self._clock = clock
        self._period = period
        self._averages = Averages()
        self._failing = ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._wanted():
                await self._ask()
            news = self._averages.changes(self._clock())
            if news is not None:
                self._tell(news)
            await asyncio.sleep(self._period)

    async def _ask(self) -> None:
        try:
            answer: Any = await self._client.get(PATH)
        except (ApiError, ConnectionLost) as error:
            if self._failing != str(error):
                self._failing = str(error)
                log.warning("what nodes really use is not known (plugin usage passes them by): %s", error)
            return
        if self._failing:
            self._failing = ""
            log.info("what nodes really use is known again")
        for item in _items(answer):
            found = sample_of(item)
            if found is not None:
                self._averages.add_sample(*found)


async def measure(client: KubeClient) -> NodesMeasured | None:
    """What nodes use right now; None where nobody says."""
    averages = Averages()
    try:
        answer: Any = await client.get(PATH)
    except (ApiError, ConnectionLost):
        return None
    latest = 0
    for item in _items(answer):
        found = sample_of(item)
        if found is not None:
            averages.add_sample(*found)
            latest = max(latest, found[1].at)
    return averages.changes(latest)


def _items(answer: Any) -> list[Any]:
    items = answer.get("items") if isinstance(answer, dict) else None
    return items if isinstance(items, list) else []


def sample_of(item: Any) -> tuple[str, Sample] | None:
    """(node, what was measured) of a NodeMetrics object; None for one that cannot be read."""
    try:
        usage = item["usage"]
        cpu, memory = parse_amount(CPU, usage["cpu"]), parse_amount(MEMORY, usage["memory"])
        at = parse_time(str(item["timestamp"]))
        return str(item["metadata"]["name"]), Sample(at, max(0, cpu), max(0, memory))
    except (KeyError, TypeError, QuantityError):
        return None
