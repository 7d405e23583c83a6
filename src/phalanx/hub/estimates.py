"""When a gang would start in a cluster: the scheduler's own forecast, over what the cluster shows."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from phalanx.hub.choice import Candidate
from phalanx.hub.copies import startable
from phalanx.hub.objects import Json, printable
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.timestamps import parse_time
from phalanx.reports.capture.writing import capture_cluster
from phalanx.reports.whatif.answer import NEVER, AskedStart
from phalanx.reports.whatif.question import Question, answer_question
from phalanx.scheduling.framework.policy import Policy
from phalanx.simulation.cluster import SimulatedCluster
from phalanx.simulation.documents import FileObject

log = logging.getLogger(__name__)

#: Seconds: for how long a cluster's objects are used again, how long it may take to show them, and to plan.
_FRESH = 5.0
_READ_SECONDS = 20.0
_PLAN_SECONDS = 30.0
_HORIZON = 7 * 24 * 3600
_MOST_OBJECTS = 500_000


class AskedCluster(Protocol):
    """A cluster that can be read."""

    @property
    def name(self) -> str: ...

    @property
    def client(self) -> KubeClient: ...


class TooLargeError(Exception):
    """The cluster shows more than is looked at."""


class _Known(msgspec.Struct):
    moment: float
    cluster: SimulatedCluster


class Estimates:
    """One thread for each cluster, so that a question which takes long holds up only questions to the same."""

    def __init__(self, policy: Policy, schedulers: Sequence[str]) -> None:
        self._policy = policy
        self._schedulers = tuple(schedulers)
        self._known: dict[str, _Known] = {}
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._busy: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}

    def close(self) -> None:
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)

    def sent(self, name: str) -> None:
        """The cluster has one gang more: what it showed before is out of date."""
        self._known.pop(name, None)

    async def ask(self, connection: AskedCluster, namespace: str, copies: Sequence[Json]) -> Candidate:
        """What the cluster says of these copies, or, where it says nothing in time, why."""
        name = connection.name
        lock = self._locks.setdefault(name, asyncio.Lock())
        try:
            async with asyncio.timeout(_READ_SECONDS + _PLAN_SECONDS), lock:
                cluster = await self._read(connection)
                if name in self._busy:
                    return Candidate(name, message="is still at the last question")
                question = Question(cluster, self._policy, _HORIZON, _objects(copies), namespace)
                thread = self._threads.setdefault(name, ThreadPoolExecutor(1, f"estimate-{name}"))
                self._busy.add(name)
                future = thread.submit(answer_question, question)
                future.add_done_callback(lambda _: self._busy.discard(name))
                answer = await asyncio.wait_for(asyncio.wrap_future(future), _PLAN_SECONDS)
        except TimeoutError:
            return Candidate(name, message="did not show what it has in time")
        except (ApiError, ConnectionLost, ConfigError, TooLargeError) as error:
            return Candidate(name, message=printable(f"could not be asked: {error}"))
        except Exception as error:
            # Whatever a cluster shows, it is no reason to keep a gang from the others.
            log.warning("cluster %s: no forecast: %s: %s", name, type(error).__name__, error)
            return Candidate(name, message=printable(f"no forecast: {type(error).__name__}: {error}"))
        return _candidate(name, answer.asked)

    async def _read(self, connection: AskedCluster) -> SimulatedCluster:
        known = self._known.get(connection.name)
        if known is not None and time.monotonic() - known.moment < _FRESH:
            return known.cluster
        async with asyncio.timeout(_READ_SECONDS):
            capture, documents = await capture_cluster(
                connection.client, self._schedulers, self._policy, time.time(), told=_count
            )
        entries = tuple(
            FileObject(f"{each.get('kind')} {each['metadata'].get('name')} of {connection.name}", each)
            for each in documents
        )
        cluster = SimulatedCluster(connection.name, entries, start=capture.moment, capture=capture)
        self._known[connection.name] = _Known(time.monotonic(), cluster)
        return cluster


def _count(plural: str, count: int) -> None:
    if count > _MOST_OBJECTS:
        raise TooLargeError(f"more than {_MOST_OBJECTS} objects")


def _objects(copies: Sequence[Json]) -> tuple[FileObject, ...]:
    return tuple(FileObject(f"{each['kind']} {each['metadata']['name']}", startable(each)) for each in copies)


def _candidate(name: str, asked: Sequence[AskedStart]) -> Candidate:
    """The last of what was asked about counts: a gang is one."""
    late = [each for each in asked if each.state == NEVER]
    if late or not asked:
        verdict = late[0].verdict if late else None
        return Candidate(
            name, never=True, message=printable(verdict.message if verdict else "would not start in 7 days")
        )
    start = max(int(parse_time(each.start)) for each in asked)
    return Candidate(name, start, message=", ".join(sorted({each.state for each in asked})))
