"""Forecasts of the start of gangs in a member cluster: the scheduler's own forecast on a capture (recorded state)
of the cluster.

One question covers many gangs. They are planned together in the given order, as if all were submitted there. So
each answer holds for any decision about the earlier gangs: a gang that goes elsewhere only frees resources.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from phalanx.hub.choice.assignment import Candidate
from phalanx.hub.choice.ledger import ClusterAccount, account_of
from phalanx.hub.copies import startable
from phalanx.hub.names import DISPATCH_LABEL, GRANT_GATE
from phalanx.hub.objects import Json, printable
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.timestamps import parse_time
from phalanx.reports.capture.writing import capture_cluster
from phalanx.reports.whatif.answer import NEVER, AskedStart
from phalanx.reports.whatif.question import Question, answer_starts
from phalanx.scheduling.framework.policy import Policy
from phalanx.simulation.cluster import SimulatedCluster
from phalanx.simulation.documents import FileObject
from phalanx.simulation.errors import InputError

log = logging.getLogger(__name__)

#: Seconds for which a capture of a cluster is used again, and limits for the capture and for the plan.
_FRESH = 5.0
_READ_SECONDS = 20.0
_PLAN_SECONDS = 30.0
_HORIZON = 7 * 24 * 3600
_MOST_OBJECTS = 500_000


class AskedCluster(Protocol):
    """Member cluster whose objects the hub can read."""

    @property
    def name(self) -> str: ...

    @property
    def client(self) -> KubeClient: ...


class TooLargeError(Exception):
    """Error for a member cluster with too many objects to capture."""


class AskedGang(msgspec.Struct, frozen=True):
    """Gang as it would be created in a member cluster, for a forecast.

    `uid` is that of its Dispatch, `name` is namespace/name. The pods of a job are `declared`: its controller
    creates them under other names.
    """

    uid: str
    name: str
    copies: tuple[Json, ...]
    declared: bool = False

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]


class _Known(msgspec.Struct):
    """Capture (recorded state) of a member cluster at `moment`.

    `pods` are its pods by namespace and name, with the uid of the Dispatch of a copy, "" for all other pods.
    """

    moment: float
    cluster: SimulatedCluster
    pods: dict[tuple[str, str], str]
    account: ClusterAccount


class _Asked(msgspec.Struct):
    """State of the forecasts in one member cluster; `sent` are gangs that the capture does not contain yet."""

    lock: asyncio.Lock
    thread: ThreadPoolExecutor
    known: _Known | None = None
    busy: bool = False
    sent: dict[str, AskedGang] = {}


class Estimates:
    """Forecasts in all member clusters. Each has its own thread: a slow cluster delays only its own forecasts."""

    def __init__(self, policy: Policy, schedulers: Sequence[str]) -> None:
        self._policy = policy
        self._schedulers = tuple(schedulers)
        self._asked: dict[str, _Asked] = {}

    def close(self) -> None:
        for asked in self._asked.values():
            asked.thread.shutdown(wait=False, cancel_futures=True)

    def sent(self, cluster: str, gang: AskedGang) -> None:
        """Count a gang that was sent to the cluster until a capture of the cluster contains the gang."""
        self._of(cluster).sent[gang.uid] = gang

    def left(self, cluster: str, uid: str) -> None:
        """Forget a gang that leaves the cluster, and the capture that still contains it."""
        if (asked := self._asked.get(cluster)) is not None:
            asked.sent.pop(uid, None)
            asked.known = None

    def ended(self, cluster: str, uid: str) -> None:
        """Forget a gang that has ended, whether or not a capture of the cluster has ever contained it."""
        if (asked := self._asked.get(cluster)) is not None:
            asked.sent.pop(uid, None)

    def forget(self, cluster: str) -> None:
        """Drop the capture of a member cluster that was replaced or has another address."""
        if (asked := self._asked.get(cluster)) is not None:
            asked.known = None

    def account(self, cluster: str) -> ClusterAccount | None:
        """Return the capacity of a member cluster and its usage by queue, from the last capture."""
        asked = self._asked.get(cluster)
        return asked.known.account if asked is not None and asked.known is not None else None

    async def ask(
        self, connection: AskedCluster, gangs: Sequence[AskedGang], others: Collection[str] = ()
    ) -> dict[str, Candidate]:
        """Return the forecasts of a member cluster for new `gangs` by uid and waiting `others` by namespace/name.

        Without an answer in time each entry has the reason.
        """
        name, asked = connection.name, self._of(connection.name)
        try:
            async with asyncio.timeout(_READ_SECONDS + _PLAN_SECONDS), asked.lock:
                known = await self._read(connection, asked)
                if asked.busy:
                    return _all(gangs, others, Candidate(name, message="is still processing the last question"))
                unseen = [sent for sent in asked.sent.values() if sent.uid not in {gang.uid for gang in gangs}]
                asked.busy = True
                future = asked.thread.submit(self._plan, name, known, unseen, list(gangs), frozenset(others))
                future.add_done_callback(lambda _: setattr(asked, "busy", False))
                return await asyncio.wait_for(asyncio.wrap_future(future), _PLAN_SECONDS)
        except TimeoutError:
            problem = "did not list its objects in time"
        except (ApiError, ConnectionLost, ConfigError, TooLargeError) as error:
            problem = printable(f"is not readable: {error}")
        except Exception as error:
            # An unexpected failure of one cluster must not keep a gang from the other clusters.
            log.warning("cluster %s: no forecast: %s: %s", name, type(error).__name__, error)
            problem = printable(f"no forecast: {type(error).__name__}: {error}")
        return _all(gangs, others, Candidate(name, message=problem))

    def _of(self, cluster: str) -> _Asked:
        if cluster not in self._asked:
            self._asked[cluster] = _Asked(asyncio.Lock(), ThreadPoolExecutor(1, f"estimate-{cluster}"))
        return self._asked[cluster]

    # -- in the cluster's thread ---------------------------------------------------------------------------

    def _plan(
        self,
        name: str,
        known: _Known,
        standing: Sequence[AskedGang],
        gangs: Sequence[AskedGang],
        others: frozenset[str],
    ) -> dict[str, Candidate]:
        """Return the forecasts for gangs; if planning fails for a gang, it has no forecast, and halves are planned
        until it is alone."""
        missing_gangs = [gang for gang in standing if not _shown(gang, known.pods)]
        refused = {gang.uid: problem for gang in gangs if (problem := _taken(gang, known.pods))}
        if refused:
            accepted = [gang for gang in gangs if gang.uid not in refused]
            answers = self._plan(name, known, missing_gangs, accepted, others)
            return answers | {uid: Candidate(name, never=True, message=problem) for uid, problem in refused.items()}
        objects = [entry for gang in (*missing_gangs, *gangs) for entry in _entries(gang, known.pods)]
        question = Question(known.cluster, self._policy, _HORIZON, tuple(objects), "default")
        try:
            starts = answer_starts(question, {*others, *(gang.name for gang in gangs)}) if objects or others else []
        except Exception as error:
            if len(gangs) > 1:
                middle = len(gangs) // 2
                first_half = self._plan(name, known, missing_gangs, gangs[:middle], others)
                return first_half | self._plan(name, known, missing_gangs, gangs[middle:], frozenset())
            if missing_gangs and gangs:
                return self._plan(name, known, (), gangs, others)
            problem = (
                str(error) if isinstance(error, InputError) else f"no forecast: {type(error).__name__}: {error}"
            )
            answer = Candidate(name, never=isinstance(error, InputError), message=printable(problem))
            return _all(gangs, others, answer)
        starts_by_name = {gang.name: gang for gang in starts}
        no_start = AskedStart("", 0, NEVER)
        answers = {gang.uid: _candidate(name, starts_by_name.get(gang.name, no_start)) for gang in gangs}
        return answers | {other: _candidate(name, starts_by_name.get(other, no_start)) for other in others}

    async def _read(self, connection: AskedCluster, asked: _Asked) -> _Known:
        if asked.known is not None and time.monotonic() - asked.known.moment < _FRESH:
            return asked.known
        async with asyncio.timeout(_READ_SECONDS):
            capture, documents = await capture_cluster(
                connection.client, self._schedulers, self._policy, time.time(), told=_count
            )
        documents = [_granted(document) for document in documents]
        entries = tuple(
            FileObject(f"{document.get('kind')} {document['metadata'].get('name')} of {connection.name}", document)
            for document in documents
        )
        pods = {
            (str(document["metadata"].get("namespace")), str(document["metadata"]["name"])): _dispatch_of(document)
            for document in documents
            if document.get("kind") == "Pod"
        }
        copies = frozenset(key for key, uid in pods.items() if uid)
        cluster = SimulatedCluster(connection.name, entries, start=capture.moment, capture=capture)
        account = await asyncio.to_thread(account_of, cluster, self._policy, copies)
        asked.known = _Known(time.monotonic(), cluster, pods, account)
        for uid in [uid for uid, gang in asked.sent.items() if _shown(gang, pods)]:
            del asked.sent[uid]
        return asked.known


def _shown(gang: AskedGang, pods: Mapping[tuple[str, str], str]) -> bool:
    if gang.declared:
        return gang.uid in pods.values()
    return all((gang.namespace, copy["metadata"]["name"]) in pods for copy in gang.copies if copy["kind"] == "Pod")


def _granted(document: Json) -> Json:
    """Return a copy without its dispatch gate: it will use its resources soon."""
    gates = (document.get("spec") or {}).get("schedulingGates") if document.get("kind") == "Pod" else None
    if not gates or not _dispatch_of(document):
        return document
    gates_left = [gate for gate in gates if gate.get("name") != GRANT_GATE]
    return {**document, "spec": {**document["spec"], "schedulingGates": gates_left}}


def _dispatch_of(document: Json) -> str:
    return str((document["metadata"].get("labels") or {}).get(DISPATCH_LABEL) or "")


def _taken(gang: AskedGang, pods: Mapping[tuple[str, str], str]) -> str:
    """Return the reason why a gang cannot be created in the cluster: another pod has the name of one of its
    pods."""
    if gang.declared:
        return ""
    for copy in gang.copies:
        name = str(copy["metadata"]["name"])
        owner = pods.get((gang.namespace, name), gang.uid) if copy["kind"] == "Pod" else gang.uid
        if owner != gang.uid:
            owner_state = "is being deleted" if owner else "is not the hub's"
            return f"Pod {gang.namespace}/{name} already exists, and {owner_state}"
    return ""


def _count(plural: str, count: int) -> None:
    if count > _MOST_OBJECTS:
        raise TooLargeError(f"more than {_MOST_OBJECTS} objects")


def _entries(gang: AskedGang, pods: Collection[tuple[str, str]]) -> list[FileObject]:
    """Return the objects of a gang for a forecast, without copies that exist in the cluster."""
    return [
        FileObject(f"{copy['kind']} {copy['metadata']['name']}", startable(copy))
        for copy in gang.copies
        if copy["kind"] != "Pod" or (gang.namespace, copy["metadata"]["name"]) not in pods
    ]


def _all(gangs: Iterable[AskedGang], others: Iterable[str], answer: Candidate) -> dict[str, Candidate]:
    return {gang.uid: answer for gang in gangs} | dict.fromkeys(others, answer)


def _candidate(name: str, asked: AskedStart) -> Candidate:
    if asked.state == NEVER:
        message = asked.verdict.message if asked.verdict else "would not start in 7 days"
        return Candidate(name, never=True, message=printable(message))
    return Candidate(name, int(parse_time(asked.start)), message=asked.state)
