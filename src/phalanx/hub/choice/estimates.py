"""When gangs would start in a cluster: the scheduler's own forecast, over what the cluster shows.

One question is about many gangs: they are planned together, in the order in which they are given, as if all of them
had been submitted there. So each answer holds whatever becomes of those before it; who of them goes elsewhere only
makes room.
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


class AskedGang(msgspec.Struct, frozen=True):
    """A gang as it would be created in a cluster: `uid` is its Dispatch's, `name` namespace/name. Of a job the pods
    are `declared`: its controller there makes them, under other names."""

    uid: str
    name: str
    copies: tuple[Json, ...]
    declared: bool = False

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]


class _Known(msgspec.Struct):
    """What a cluster showed at `moment`. `pods` are there, by namespace and name, with the uid of the Dispatch
    that they are copies for, "" for those that are not the hub's."""

    moment: float
    cluster: SimulatedCluster
    pods: dict[tuple[str, str], str]
    account: ClusterAccount


class _Asked(msgspec.Struct):
    """`sent` are gangs that what is known does not show yet."""

    lock: asyncio.Lock
    thread: ThreadPoolExecutor
    known: _Known | None = None
    busy: bool = False
    sent: dict[str, AskedGang] = {}


class Estimates:
    """One thread for each cluster, so that a question which takes long holds up only questions to the same."""

    def __init__(self, policy: Policy, schedulers: Sequence[str]) -> None:
        self._policy = policy
        self._schedulers = tuple(schedulers)
        self._asked: dict[str, _Asked] = {}

    def close(self) -> None:
        for each in self._asked.values():
            each.thread.shutdown(wait=False, cancel_futures=True)

    def sent(self, cluster: str, gang: AskedGang) -> None:
        """The cluster gets this gang, which it does not show yet."""
        self._of(cluster).sent[gang.uid] = gang

    def left(self, cluster: str, uid: str) -> None:
        """The gang goes elsewhere: what the cluster showed of it is out of date."""
        if (asked := self._asked.get(cluster)) is not None:
            asked.sent.pop(uid, None)
            asked.known = None

    def ended(self, cluster: str, uid: str) -> None:
        """The gang takes no room any more, whether or not the cluster has ever shown it."""
        if (asked := self._asked.get(cluster)) is not None:
            asked.sent.pop(uid, None)

    def forget(self, cluster: str) -> None:
        """It is another cluster, or is reached otherwise: what was shown before is not believed."""
        if (asked := self._asked.get(cluster)) is not None:
            asked.known = None

    def account(self, cluster: str) -> ClusterAccount | None:
        """What the cluster has, and who holds how much of it, as it was read last."""
        asked = self._asked.get(cluster)
        return asked.known.account if asked is not None and asked.known is not None else None

    async def ask(
        self, connection: AskedCluster, gangs: Sequence[AskedGang], others: Collection[str] = ()
    ) -> dict[str, Candidate]:
        """What the cluster says of each gang by uid, and of those (namespace/name) that wait there already, by
        name; where it says nothing in time, why, of all of them."""
        name, asked = connection.name, self._of(connection.name)
        try:
            async with asyncio.timeout(_READ_SECONDS + _PLAN_SECONDS), asked.lock:
                known = await self._read(connection, asked)
                if asked.busy:
                    return _all(gangs, others, Candidate(name, message="is still at the last question"))
                standing = [each for each in asked.sent.values() if each.uid not in {gang.uid for gang in gangs}]
                asked.busy = True
                future = asked.thread.submit(self._plan, name, known, standing, list(gangs), frozenset(others))
                future.add_done_callback(lambda _: setattr(asked, "busy", False))
                return await asyncio.wait_for(asyncio.wrap_future(future), _PLAN_SECONDS)
        except TimeoutError:
            said = "did not show what it has in time"
        except (ApiError, ConnectionLost, ConfigError, TooLargeError) as error:
            said = printable(f"could not be asked: {error}")
        except Exception as error:
            # Whatever a cluster shows, it is no reason to keep a gang from the others.
            log.warning("cluster %s: no forecast: %s: %s", name, type(error).__name__, error)
            said = printable(f"no forecast: {type(error).__name__}: {error}")
        return _all(gangs, others, Candidate(name, message=said))

    def _of(self, cluster: str) -> _Asked:
        if cluster not in self._asked:
            self._asked[cluster] = _Asked(asyncio.Lock(), ThreadPoolExecutor(1, f"estimate-{cluster}"))
        return self._asked[cluster]

    # -- in the cluster's thread ----------------------------------------------------------------------------

    def _plan(
        self,
        name: str,
        known: _Known,
        standing: Sequence[AskedGang],
        gangs: Sequence[AskedGang],
        others: frozenset[str],
    ) -> dict[str, Candidate]:
        """Who cannot be asked about spoils only its own answer: halves are asked until it is alone."""
        there = [each for each in standing if not _shown(each, known.pods)]
        refused = {gang.uid: said for gang in gangs if (said := _taken(gang, known.pods))}
        if refused:
            left = [gang for gang in gangs if gang.uid not in refused]
            answers = self._plan(name, known, there, left, others)
            return answers | {uid: Candidate(name, never=True, message=said) for uid, said in refused.items()}
        objects = [entry for gang in (*there, *gangs) for entry in _entries(gang, known.pods)]
        question = Question(known.cluster, self._policy, _HORIZON, tuple(objects), "default")
        try:
            starts = answer_starts(question, {*others, *(gang.name for gang in gangs)}) if objects or others else []
        except Exception as error:
            if len(gangs) > 1:
                middle = len(gangs) // 2
                found = self._plan(name, known, there, gangs[:middle], others)
                return found | self._plan(name, known, there, gangs[middle:], frozenset())
            if there and gangs:
                return self._plan(name, known, (), gangs, others)
            said = str(error) if isinstance(error, InputError) else f"no forecast: {type(error).__name__}: {error}"
            answer = Candidate(name, never=isinstance(error, InputError), message=printable(said))
            return _all(gangs, others, answer)
        by_name = {each.name: each for each in starts}
        missing = AskedStart("", 0, NEVER)
        answers = {gang.uid: _candidate(name, by_name.get(gang.name, missing)) for gang in gangs}
        return answers | {other: _candidate(name, by_name.get(other, missing)) for other in others}

    async def _read(self, connection: AskedCluster, asked: _Asked) -> _Known:
        if asked.known is not None and time.monotonic() - asked.known.moment < _FRESH:
            return asked.known
        async with asyncio.timeout(_READ_SECONDS):
            capture, documents = await capture_cluster(
                connection.client, self._schedulers, self._policy, time.time(), told=_count
            )
        documents = [_granted(each) for each in documents]
        entries = tuple(
            FileObject(f"{each.get('kind')} {each['metadata'].get('name')} of {connection.name}", each)
            for each in documents
        )
        pods = {
            (str(each["metadata"].get("namespace")), str(each["metadata"]["name"])): _dispatch_of(each)
            for each in documents
            if each.get("kind") == "Pod"
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
    return all((gang.namespace, each["metadata"]["name"]) in pods for each in gang.copies if each["kind"] == "Pod")


def _granted(document: Json) -> Json:
    """A copy that is still gated takes its room soon: it is planned as if the gate had gone."""
    gates = (document.get("spec") or {}).get("schedulingGates") if document.get("kind") == "Pod" else None
    if not gates or not _dispatch_of(document):
        return document
    left = [gate for gate in gates if gate.get("name") != GRANT_GATE]
    return {**document, "spec": {**document["spec"], "schedulingGates": left}}


def _dispatch_of(document: Json) -> str:
    return str((document["metadata"].get("labels") or {}).get(DISPATCH_LABEL) or "")


def _taken(gang: AskedGang, pods: Mapping[tuple[str, str], str]) -> str:
    """Why it cannot be created there: another's pod has the name of one of its."""
    if gang.declared:
        return ""
    for each in gang.copies:
        name = str(each["metadata"]["name"])
        owner = pods.get((gang.namespace, name), gang.uid) if each["kind"] == "Pod" else gang.uid
        if owner != gang.uid:
            whose = "is being cleared away" if owner else "is not the hub's"
            return f"Pod {gang.namespace}/{name} is there already, and {whose}"
    return ""


def _count(plural: str, count: int) -> None:
    if count > _MOST_OBJECTS:
        raise TooLargeError(f"more than {_MOST_OBJECTS} objects")


def _entries(gang: AskedGang, pods: Collection[tuple[str, str]]) -> list[FileObject]:
    """Without those of its copies that are there already."""
    return [
        FileObject(f"{each['kind']} {each['metadata']['name']}", startable(each))
        for each in gang.copies
        if each["kind"] != "Pod" or (gang.namespace, each["metadata"]["name"]) not in pods
    ]


def _all(gangs: Iterable[AskedGang], others: Iterable[str], answer: Candidate) -> dict[str, Candidate]:
    return {gang.uid: answer for gang in gangs} | dict.fromkeys(others, answer)


def _candidate(name: str, asked: AskedStart) -> Candidate:
    if asked.state == NEVER:
        said = asked.verdict.message if asked.verdict else "would not start in 7 days"
        return Candidate(name, never=True, message=printable(said))
    return Candidate(name, int(parse_time(asked.start)), message=asked.state)
