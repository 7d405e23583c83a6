"""Pods, and the classes that make thousands of them one question."""

from __future__ import annotations

import enum

import msgspec

from phalanx.model.account import DEFAULT_QUEUE
from phalanx.model.devices.cards import DeviceNeed
from phalanx.model.devices.claims import ClaimNeed
from phalanx.model.peers import NO_PEERS, Peers
from phalanx.model.pools import PoolRule
from phalanx.model.resources import PODS, Requests
from phalanx.model.run_time import NO_RUN_TIME, RunTime
from phalanx.model.selectors import HostPort, NodeSelectorTerm, PreferredTerm, Toleration
from phalanx.model.volumes import NO_VOLUMES, PodVolumes, VolumeNeed


class ReservationUse(msgspec.Struct, frozen=True, cache_hash=True):
    """What advance reservations mean for a pod: it may use those that `names` names, and with `inside` nothing but
    them. A `fault` says why the one that it asks for is not for it."""

    names: tuple[str, ...] = ()
    inside: bool = False
    fault: str = ""


class PodClass(msgspec.Struct, frozen=True, cache_hash=True):
    """Everything in a pod's spec that decides where it may go and how good that is; equal for identical pods.

    `requests` follow kube-scheduler 1.36's arithmetic and leave out the implicit `pods: 1`. `affinity` is the OR of
    its terms; None where the pod states no requirement, () where it states one that nothing can meet. `scored_cpu`
    and `scored_memory` are the requests with kube-scheduler's defaults (100m, 200Mi per container without one),
    used for scoring only. `unsupported` names spec fields that we cannot honour yet: a pod with one is refused,
    never placed in spite of it. `revocable` pods may use nodes that are lent for a time: their owner says that they
    may be evicted (None where the owner says nothing).

    `peers`, `volumes`, `claims` and `devices` are what it asks of other pods, of its volumes and of devices. `numa`
    is the NUMA policy that it asks for, `cpus` are the whole CPUs that containers of Guaranteed pods get for
    themselves, `pool` the groups of nodes that its queue may use, `images` the normalised names of its images, of
    which `image_volumes` belong to volumes, `features` what a node must declare (`status.declaredFeatures`).
    `reservation` is what advance reservations mean for it, None where they mean nothing.
    `beside` is what accounts are charged beyond `requests`: devices that it gets by claims. `run_limit` says how
    many seconds after it was placed a pod has left its node at the latest, 0 where no end is known: what is
    reserved for others from some time on takes only those that end before.
    """

    requests: Requests = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    preferred: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    scored_cpu: int = 0
    scored_memory: int = 0
    strategy: str = ""  # JSON of a per-pod scoring override (volcano.sh/resource-strategy-*)
    unsupported: tuple[str, ...] = ()
    revocable: bool | None = None
    peers: Peers = NO_PEERS
    volumes: tuple[VolumeNeed, ...] = ()
    claims: tuple[ClaimNeed, ...] = ()
    devices: DeviceNeed | None = None
    numa: str = ""
    cpus: tuple[int, ...] = ()
    pool: PoolRule | None = None
    images: tuple[str, ...] = ()
    image_volumes: int = 0
    features: tuple[str, ...] = ()
    beside: Requests = ()
    run_limit: int = 0
    reservation: ReservationUse | None = None

    @property
    def best_effort(self) -> bool:
        """Asks for nothing but a pod slot."""
        return not self.requests and not self.beside

    def charged(self, usage: Requests) -> dict[str, int]:
        """resource -> what accounts are charged for a pod that takes `usage` from its node."""
        return {PODS: 1, **dict(usage), **dict(self.beside)}


class PodPhase(enum.StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class PlanMark(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """The trace that a gang's plan leaves on each pod it binds (an annotation carried by the Binding).

    It survives a crash between the bindings of one gang: a member that carries the mark proves that the whole
    quorum of `size` members was placed at `time` (seconds since the epoch), so the rest is repaired, not judged
    anew. A mark of size 1 is that of a member which joined a gang that had its quorum: while it lives, the gang's
    run goes on.
    """

    plan: str
    size: int
    time: int

    @classmethod
    def of(cls, cause: str, size: int, time: int, group: str = "") -> PlanMark:
        """`group` is the uid of the object that declares the gang, where another of its name is another gang."""
        return cls(f"{cause}-{time}@{group}" if group else f"{cause}-{time}", size, time)

    def concerns(self, group: str) -> bool:
        """Whether it is a plan for the group with this uid, as far as anybody knows."""
        known = self.plan.partition("@")[2]
        return not known or not group or known == group

    def __str__(self) -> str:
        return f"{self.plan}/{self.size}/{self.time}"


class Pod(msgspec.Struct, frozen=True, gc=False):
    """One pod as last observed.

    `usage` is what it takes from its node (requests, or more after an in-place resize). `gang` is the name of
    its group in its own namespace ("" for a pod on its own), `role` its task in the group. `index` orders the
    members of a group before their age does; who `leads` the others (a master, a driver) goes last of them.
    `created` is in seconds since the epoch. `problem` says why the pod
    cannot be scheduled although it may occupy a node (something in it could not be read). `queue` is the queue of
    a pod on its own (a gang's queue is the gang's), `quota` names the quota that the pod asks to be charged to (""
    to go by its namespace), `user` who is behind it where that is configured. `firm` pods may never be evicted and
    so may only use what their quota is guaranteed (Koordinator's preemptible: false).

    What matters once somebody else needs the room: `started` (it began to run), `bound` (it got its node) and
    `checkpoint` (its work was last saved) are in seconds since the epoch, 0 where unknown; `leaves` is when a
    terminating pod's grace is over, `grace` how many seconds it gets. `preemptable` is False where its owner
    forbids eviction, `cooldown` forbids it for so many seconds from `bound` on. A `fixture` belongs to its node (a
    DaemonSet's pod, a static pod): evicting it frees nothing. `critical` is what the cluster itself needs.
    `budgets` name the PodDisruptionBudgets of its namespace that count it. `controller` is the uid of the object
    that makes another when the pod is gone, "" where there is none: an evicted pod without one is lost.

    A `placeholder` stands for a member that the leader of its gang is going to make: it is placed and holds its
    room, on `nominated_node` where that is decided, until `expires` (seconds since the epoch; 0 while the leader
    has no node). It is no object of the API.

    `run_time` is how long it runs, as far as anybody says.
    """

    namespace: str
    name: str
    uid: str
    pod_class: PodClass
    usage: Requests = ()
    scheduler: str = ""
    node: str = ""
    phase: PodPhase = PodPhase.PENDING
    terminating: bool = False
    gated: bool = False
    priority: int = 0
    preempts: bool = True
    created: int = 0
    gang: str = ""
    role: str = ""
    index: int = 2**31
    nominated_node: str = ""
    mark: PlanMark | None = None
    problem: str = ""
    queue: str = DEFAULT_QUEUE
    quota: str = ""
    user: str = ""
    firm: bool = False
    started: int = 0
    bound: int = 0
    checkpoint: int = 0
    leaves: int = 0
    grace: int = 30
    preemptable: bool = True
    cooldown: int = 0
    fixture: bool = False
    critical: bool = False
    budgets: tuple[str, ...] = ()
    condemned: str = ""
    controller: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    cards: tuple[str, ...] = ()  # the ids of the shared devices that it holds, as the API tells
    claims: tuple[str, ...] = ()  # the names of its resource claims, as its class orders what they ask for
    volumes: PodVolumes = NO_VOLUMES  # what its class's needs are called
    leads: bool = False
    placeholder: bool = False
    expires: int = 0
    run_time: RunTime = NO_RUN_TIME

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def controlled(self) -> bool:
        return bool(self.controller)

    @property
    def finished(self) -> bool:
        phase = self.phase
        return phase is PodPhase.SUCCEEDED or phase is PodPhase.FAILED


class MemberState(enum.IntEnum):
    """Where a pod stands, as its gang counts it; exactly one holds at a time."""

    PENDING = 0  # ours to place
    GATED = 1  # has scheduling gates
    OTHER_SCHEDULER = 2  # pending, but another scheduler's
    ASSUMED = 3  # chosen by us; the API has not confirmed the binding yet
    BOUND = 4  # has a node, does not run yet
    RUNNING = 5
    SUCCEEDED = 6
    FAILED = 7
    TERMINATING = 8


# On a node, and can be told to leave; a pod whose binding is on its way cannot yet.
CAN_LEAVE = (MemberState.BOUND, MemberState.RUNNING)
# On a node or on the way to one, and staying.
ACTIVE = (MemberState.ASSUMED, *CAN_LEAVE)


def bound_at(pod: Pod) -> int:
    """When the pod got its node, or the best that is known about that."""
    return pod.bound or pod.started or pod.created
