"""State of pods and gangs as the usage recorder needs it, and the precision of each time."""

from __future__ import annotations

import enum
import hashlib

import msgspec

from phalanx.dialects.core import Condition, PodObject, decode_pod
from phalanx.dialects.pods.evictability import DISRUPTION_TARGET
from phalanx.dialects.times import parse_time
from phalanx.model.gang import Gang, GangKey
from phalanx.model.pod import Pod, PodPhase
from phalanx.model.resources import Requests, requests_of
from phalanx.model.text.decoding import MAX_NAME
from phalanx.notifications.events import stated_subscription

#: Reason of a pod that ran until its run-time limit, as kubelets write it.
DEADLINE_EXCEEDED = "DeadlineExceeded"


class Precision(enum.IntEnum):
    """Source of a recorded time, and thereby its precision."""

    REPORTED = 0  # a field of an object
    OBSERVED = 1  # our clock at the watch event
    ESTIMATED = 2  # the change happened while the recorder did not watch


class PodOutcome(enum.StrEnum):
    """Way in which a pod ended; "" before it has ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    EVICTED = "Evicted"
    DELETED = "Deleted"  # deleted before it succeeded or failed; its containers can end with any exit code then
    UNKNOWN = "Unknown"  # ended while the recorder did not watch


class PodFact(msgspec.Struct, frozen=True):
    """State of a pod for the usage recorder. Texts are printable and short.

    `gang` is "" for a single pod. `placed` is True once it has a node, since `bound` (0 if no field has the time).
    `outcome` is "" before its end; `ended` is the time of its end (0 if no field has it), `observed` is True if a
    watch event showed the deletion. `leaves` is the end of its grace period, 0 if it is not being deleted.
    `evicted` is the time of its eviction (0: none), then `reason` is the eviction's, else that of its end.
    `limit` is the time at which its run-time limit ends it, 0 without one. `notify` is its stated subscription to
    notifications, as JSON.
    """

    uid: str
    namespace: str
    name: str
    gang: str
    role: str
    queue: str
    user: str
    node: str
    amounts: Requests
    created: int
    placed: bool
    bound: int
    outcome: str = ""
    ended: int = 0
    leaves: int = 0
    evicted: int = 0
    reason: str = ""
    observed: bool = False
    limit: int = 0
    notify: str = ""


class GangFact(msgspec.Struct, frozen=True):
    """State of a gang besides its pods, for the usage recorder. `uid` and `created` are those of its object or
    owner.

    With `admission` its submission is the creation of that object, not of its pods, which wait until it is
    `admitted`. Unless it is `declared` by an object, it exists only while it has members. `shown` is its name
    in views.
    """

    namespace: str
    name: str
    uid: str
    kind: str
    queue: str
    created: int
    admission: bool
    admitted: bool
    declared: bool
    shown: str = ""

    @property
    def run_uid(self) -> str:
        """Uid of the run that the gang declares before it has members."""
        return run_uid(self.uid, self.name)


class ReadPod(msgspec.Struct):
    """Pod of the API; `finished` is the time of its last container's end, 0 if no container reports it."""

    pod: PodObject
    finished: int


class _Terminated(msgspec.Struct, rename="camel"):
    finished_at: str | None = None


class _State(msgspec.Struct):
    terminated: _Terminated | None = None


class _Container(msgspec.Struct):
    state: _State | None = None


class _Status(msgspec.Struct, rename="camel"):
    container_statuses: list[_Container] | None = None
    init_container_statuses: list[_Container] | None = None


class _Ends(msgspec.Struct):
    status: _Status | None = None


_ENDS = msgspec.json.Decoder(_Ends)


def read_pod(raw: bytes) -> ReadPod:
    """Decode a pod; unreadable end times count as unknown. Raises msgspec.DecodeError as `decode_pod` does."""
    pod = decode_pod(raw)
    if pod.status.phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED):
        return ReadPod(pod, 0)
    try:
        status = _ENDS.decode(raw).status or _Status()
    except msgspec.DecodeError:
        return ReadPod(pod, 0)
    containers = [*(status.container_statuses or ()), *(status.init_container_statuses or ())]
    ends = (container.state.terminated for container in containers if container.state is not None)
    return ReadPod(pod, max((parse_time(end.finished_at) for end in ends if end is not None), default=0))


def pod_fact(read: ReadPod, spec: Pod, queue: str) -> PodFact:
    """Return the state of a pod for the recorder. `spec` is the pod as the scheduler decodes it; `queue` its gang's
    queue or its own."""
    status = read.pod.status
    disruption = _disruption(status.conditions)
    evicted = parse_time(disruption.last_transition_time) if disruption is not None else 0
    started = spec.started or spec.bound
    outcome, limit = "", (spec.run_time.latest_end(started, 0) or 0) if started else 0
    reason = disruption.reason if disruption is not None else ""
    if spec.finished:
        outcome = PodOutcome.SUCCEEDED if spec.phase is PodPhase.SUCCEEDED else PodOutcome.FAILED
        reason = reason or status.reason
        if disruption is not None:
            # An evicted process that saves its work and exits with 0 has not finished its work.
            if outcome == PodOutcome.FAILED or (
                spec.terminating and (not read.finished or read.finished >= evicted)
            ):
                outcome = PodOutcome.EVICTED
        elif spec.terminating:
            requested = spec.leaves - (read.pod.metadata.deletion_grace_period_seconds or 0)
            if not read.finished or read.finished >= requested:
                # The exit code is that of the signal, or of a process that handles it.
                outcome, reason = _deletion(limit, requested)
    return PodFact(
        uid=spec.uid,
        namespace=spec.namespace,
        name=spec.name,
        gang=plain(spec.gang),
        role=plain(spec.role),
        queue=plain(queue),
        user=plain(spec.user),
        node=plain(spec.node),
        amounts=requests_of({plain(name): amount for name, amount in spec.pod_class.charged(spec.usage).items()}),
        created=spec.created,
        placed=bool(spec.node),
        bound=spec.bound,
        outcome=outcome,
        ended=read.finished if outcome else 0,
        leaves=spec.leaves,
        evicted=evicted,
        reason=plain(reason),
        limit=limit,
        notify=stated_subscription(read.pod.metadata.annotations),
    )


def deleted_fact(fact: PodFact, ended: int) -> PodFact:
    """Return the state of a deleted pod; a pod that had finished before keeps its end."""
    if fact.outcome:
        return fact
    outcome, reason = (
        (PodOutcome.EVICTED, fact.reason) if fact.evicted or fact.reason else _deletion(fact.limit, ended)
    )
    return msgspec.structs.replace(fact, outcome=outcome, reason=reason, ended=ended, observed=True)


def _deletion(limit: int, requested: int) -> tuple[PodOutcome, str]:
    """Return outcome and reason of a pod whose deletion was requested at `requested`: controllers delete the pods
    of a job that has reached its run-time limit."""
    if limit and requested >= limit:
        return PodOutcome.FAILED, DEADLINE_EXCEEDED
    return PodOutcome.DELETED, ""


def gang_fact(gang: Gang) -> GangFact:
    source = gang.source
    return GangFact(
        namespace=gang.key.namespace,
        name=plain(gang.key.name),
        uid=gang.uid,
        kind=f"{source.kind}.{source.group}" if source is not None else "",
        queue=plain(gang.queue),
        created=gang.created,
        admission=gang.admission,
        admitted=gang.admitted,
        declared=source is not None and bool(gang.uid),
        shown=plain(gang.title.removeprefix(f"{gang.key.namespace}/")),
    )


def run_uid(gang_uid: str, gang: str) -> str:
    """Return the uid of a run: one object can declare several gangs. A hash, because names can be erased."""
    return hashlib.blake2s(f"{gang_uid}/{gang}".encode(), digest_size=16).hexdigest()


def key_of(fact: PodFact) -> GangKey:
    """Return the key of a pod's gang; a single pod gets a key that no gang can have."""
    return GangKey(fact.namespace, fact.gang or f"/{fact.uid}")


def plain(text: str) -> str:
    """Cut a user's text to a length for the database and replace characters that a terminal cannot print."""
    text = text[:MAX_NAME]
    return text if text.isprintable() else "".join(char if char.isprintable() else "\ufffd" for char in text)


def _disruption(conditions: list[Condition]) -> Condition | None:
    for condition in conditions:
        if (condition.type, condition.status) == (DISRUPTION_TARGET, "True"):
            return condition
    return None
