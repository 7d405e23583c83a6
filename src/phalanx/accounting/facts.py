"""What the recorder takes of pods and gangs, and how far each moment of it is known."""

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


class Precision(enum.IntEnum):
    """How a moment is known."""

    REPORTED = 0  # an object says so
    OBSERVED = 1  # seen when it happened, by our clock
    ESTIMATED = 2  # it happened while nobody watched


class PodOutcome(enum.StrEnum):
    """How a pod ended; "" while it has not."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    EVICTED = "Evicted"
    DELETED = "Deleted"  # it had neither succeeded nor failed
    UNKNOWN = "Unknown"  # nobody watched


class PodFact(msgspec.Struct, frozen=True):
    """What a pod says. `gang` is "" for a pod on its own. It is `placed` once it has a node, since `bound` (0 where
    nothing says when). `outcome` is "" while it is there and not finished; it `ended` then, 0 where nothing says
    when; `observed` if we saw it go. It `leaves` when its grace is over, 0 where nobody has deleted it.

    `evicted` is when it was told to go, with the `reason`, which is else that of its end. Text is clean: no control
    characters, and not long.
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


class GangFact(msgspec.Struct, frozen=True):
    """What declares a gang beside its pods. `uid` and `created` are those of its object or owner. With `admission`
    it was submitted when that was created, not when its pods came, which wait until it is `admitted`. Unless it is
    `declared` by an object, it is there only as long as it has members. `shown` is its name in views."""

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
        """That of the run that it declares before it has members."""
        return run_uid(self.uid, self.name)


class ReadPod(msgspec.Struct):
    """A pod as the API has it; `finished` is when its last container ended, 0 where none says so."""

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
    """Raises msgspec.DecodeError, as `decode_pod` does; ends that cannot be read are not known."""
    pod = decode_pod(raw)
    if pod.status.phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED):
        return ReadPod(pod, 0)
    try:
        status = _ENDS.decode(raw).status or _Status()
    except msgspec.DecodeError:
        return ReadPod(pod, 0)
    containers = [*(status.container_statuses or ()), *(status.init_container_statuses or ())]
    ends = (each.state.terminated for each in containers if each.state is not None)
    return ReadPod(pod, max((parse_time(each.finished_at) for each in ends if each is not None), default=0))


def pod_fact(read: ReadPod, spec: Pod, queue: str) -> PodFact:
    """`spec` is how the intake understands the pod; `queue` is that of its gang, or its own."""
    status = read.pod.status
    told = _disruption(status.conditions)
    evicted = parse_time(told.last_transition_time) if told is not None else 0
    outcome = ""
    if spec.phase is PodPhase.SUCCEEDED:
        # Whoever was told to go and saves its work first may end with success, which is not the end of its work.
        left = told is not None and spec.terminating and (not read.finished or read.finished >= evicted)
        outcome = PodOutcome.EVICTED if left else PodOutcome.SUCCEEDED
    elif spec.phase is PodPhase.FAILED:
        outcome = PodOutcome.EVICTED if told is not None else PodOutcome.FAILED
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
        reason=plain(told.reason if told is not None else status.reason if outcome else ""),
    )


def gone(fact: PodFact, ended: int) -> PodFact:
    """A pod that is no longer there; where it had finished before, that was its end."""
    if fact.outcome:
        return fact
    outcome = PodOutcome.EVICTED if fact.evicted or fact.reason else PodOutcome.DELETED
    return msgspec.structs.replace(fact, outcome=outcome, ended=ended, observed=True)


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
    """One object may declare several gangs. Their names are nothing to keep once they are erased."""
    return hashlib.blake2s(f"{gang_uid}/{gang}".encode(), digest_size=16).hexdigest()


def key_of(fact: PodFact) -> GangKey:
    """A pod on its own is a gang by itself, whose name is no gang's."""
    return GangKey(fact.namespace, fact.gang or f"/{fact.uid}")


def plain(text: str) -> str:
    """What a database keeps and a terminal shows of text that anybody may have written."""
    text = text[:MAX_NAME]
    return text if text.isprintable() else "".join(each if each.isprintable() else "\ufffd" for each in text)


def _disruption(conditions: list[Condition]) -> Condition | None:
    for each in conditions:
        if (each.type, each.status) == (DISRUPTION_TARGET, "True"):
            return each
    return None
