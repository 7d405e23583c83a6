"""Pods, and pod classes: thousands of equal pods are placed as one class."""

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
    """Advance reservations that a pod can use: those in `names`; with `inside` it can use no other capacity.

    `fault` is the reason why the pod cannot use the reservation that it names.
    """

    names: tuple[str, ...] = ()
    inside: bool = False
    fault: str = ""


class PodClass(msgspec.Struct, frozen=True, cache_hash=True):
    """All placement-relevant fields of a pod's spec; equal for identical pods.

    `requests` follow the arithmetic of kube-scheduler 1.36, without the implicit `pods: 1`. `affinity` is the OR
    of its terms; None without a requirement, () for a requirement that no node satisfies. `scored_cpu` and
    `scored_memory` are the requests with kube-scheduler's defaults (100m, 200Mi per container without requests),
    for scoring only. `unsupported` lists spec fields that Phalanx does not support: a pod with one is rejected,
    never placed. `revocable` pods can use nodes that are lent for a time: their owner allows their eviction (None
    if unset).

    `peers`, `volumes`, `claims` and `devices` are constraints on other pods, volumes and devices. `numa` is the
    requested NUMA policy, `cpus` are the exclusive CPUs of containers of Guaranteed pods, `pool` the groups of
    nodes that its queue can use, `images` the normalised names of its images, of which `image_volumes` belong to
    volumes, `features` those that a node must declare (`status.declaredFeatures`). `reservation` is its use of
    advance reservations, None without one. `beside` is charged to accounts in addition to `requests`: devices of
    its claims. `run_limit` is the maximum number of seconds from its placement to its departure from the node, 0
    if unknown: only pods with an early enough end can use capacity that is reserved from some time on.
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
        """Whether the pod requests only a pod slot."""
        return not self.requests and not self.beside

    def charged(self, usage: Requests) -> dict[str, int]:
        """Return the amounts by resource that accounts are charged for a pod with this node usage."""
        return {PODS: 1, **dict(usage), **dict(self.beside)}


class PodPhase(enum.StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class PlanMark(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """Mark of a gang's plan on each pod that the plan binds (an annotation of the Binding).

    The mark survives a crash between the bindings of one gang: a member with the mark proves that the whole
    quorum of `size` members was placed at `time` (seconds since the epoch), so the remaining members are repaired
    and not decided again. A mark of size 1 belongs to a member that joined a gang with a quorum: while this
    member exists, the run of the gang continues.
    """

    plan: str
    size: int
    time: int

    @classmethod
    def of(cls, cause: str, size: int, time: int, group: str = "") -> PlanMark:
        """Return the mark of a plan; `group` is the uid of the declaring object, which distinguishes gangs of
        equal name.
        """
        return cls(f"{cause}-{time}@{group}" if group else f"{cause}-{time}", size, time)

    def concerns(self, group: str) -> bool:
        """Return whether the plan can belong to the PodGroup with this uid (unknown uids match)."""
        known = self.plan.partition("@")[2]
        return not known or not group or known == group

    def __str__(self) -> str:
        return f"{self.plan}/{self.size}/{self.time}"


class Pod(msgspec.Struct, frozen=True, gc=False):
    """Pod as last observed.

    `usage` is its usage of the node (requests, or more after an in-place resize). `gang` is the name of its group
    in its namespace ("" for a pod on its own), `role` its task in the group. `index` orders the members of a
    group before their age; a member that `leads` the group (a master, a driver) is evicted last. `created` is in
    seconds since the epoch. `problem` is the reason why the pod cannot be scheduled although it can occupy a node
    (a field was unreadable). `queue` is the queue of a pod on its own (a gang has its own queue), `quota` the
    quota that the pod names ("" for that of its namespace), `user` its user, if configured. `firm` pods are never
    evicted, so they can use only the guaranteed quota (Koordinator's preemptible: false).

    For preemption, `started` (first run), `bound` (binding) and `checkpoint` (last checkpoint) are in seconds
    since the epoch, 0 if unknown; `leaves` is the end of a terminating pod's grace period, `grace` its length in
    seconds. `preemptable` is False if its owner forbids eviction, `cooldown` forbids it for so many seconds after
    `bound`. A `fixture` belongs to its node (a DaemonSet's pod, a static pod): its eviction frees nothing.
    `critical` pods are required by the cluster itself. `budgets` are the PodDisruptionBudgets of its namespace
    that select it. `controller` is the uid of the object that replaces the pod, "" without one: an evicted pod
    without a controller is lost.

    A `placeholder` represents a member that the leader of its gang will create: it is placed and occupies
    capacity, on `nominated_node` once that is decided, until `expires` (seconds since the epoch; 0 while the
    leader has no node). It is no object of the API.

    `run_time` is its stated run time. `marked_bound` is the time of its binding according to our signed mark, 0
    without a valid mark. An `endless` pod is restarted or replaced whenever it ends, so without a limit it never
    leaves. `owner_kind` is the kind of its controller, "" without one.
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
    cards: tuple[str, ...] = ()  # ids of its shared devices, from the API
    claims: tuple[str, ...] = ()  # names of its resource claims, in the order of its class's needs
    volumes: PodVolumes = NO_VOLUMES  # names for the volume needs of its class
    leads: bool = False
    placeholder: bool = False
    expires: int = 0
    run_time: RunTime = NO_RUN_TIME
    marked_bound: int = 0
    endless: bool = False
    owner_kind: str = ""

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
    """State of a pod in the member counts of its gang; exactly one applies."""

    PENDING = 0  # to be placed by Phalanx
    GATED = 1  # has scheduling gates
    OTHER_SCHEDULER = 2  # pending, for another scheduler
    ASSUMED = 3  # placed by Phalanx; the API has not confirmed the binding
    BOUND = 4  # bound, not running
    RUNNING = 5
    SUCCEEDED = 6
    FAILED = 7
    TERMINATING = 8


# On a node, and evictable; a pod with an unconfirmed binding is not evictable yet.
CAN_LEAVE = (MemberState.BOUND, MemberState.RUNNING)
# On a node or assumed, and not terminating.
ACTIVE = (MemberState.ASSUMED, *CAN_LEAVE)


def proved_binding(pod: Pod) -> int:
    """Return the time at which a scheduler with our keys bound the pod, in seconds since the epoch; 0 without a
    proof.
    """
    return pod.mark.time if pod.mark is not None else pod.marked_bound


def bound_at(pod: Pod) -> int:
    """Return the time of the pod's binding, or the best known approximation."""
    return pod.bound or pod.started or pod.created
