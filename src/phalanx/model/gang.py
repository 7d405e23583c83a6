"""Gangs: pods that start together or not at all, and the gang groups that tie gangs to each other."""

from __future__ import annotations

import enum
import re

import msgspec

from phalanx.model.disruption import Portion
from phalanx.model.resources import Requests
from phalanx.model.run_time import NOTHING_STATED, StatedRunTime
from phalanx.model.tasks import TaskTopology
from phalanx.model.text.decoding import legible
from phalanx.model.topology import SubgroupRule, TopologyRule

# Every further gang of a gang group makes the search for room for all of them harder, and everybody waits
# meanwhile.
MOST_GANGS = 32
# The most members for which one leader may have room held.
MOST_EXPECTED = 5000


class GangRules(msgspec.Struct, frozen=True):
    """What follows for a gang from the way in which it was declared, as far as others than its dialect ask.

    `name` is what policies call the way. By native rules members above the minimum do as in Kubernetes' own groups:
    each has others preempted by itself and follows its gang's domain at once. `native` gangs are declared by such
    a group, which has a priority of its own and holds claims for its members. Pods declare gangs that are `alone`
    all by themselves.
    """

    name: str = ""
    by_native_rules: bool = False
    native: bool = False
    alone: bool = False


PLAIN = GangRules()


class MatchPolicy(enum.StrEnum):
    """Which members count towards the quorum (docs/rules/coscheduling.md, section 1.5)."""

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    WAITING_RUNNING_SUCCEEDED = "waiting-running-succeed"
    ONCE_SATISFIED = "once-satisfied"
    # As waiting-and-running until the quorum has been placed once; then members come singly while any is left.
    UNTIL_SCHEDULED = "until-scheduled"


# KIND:OWNER, or KIND:OWNER:UID, and what part of the owner: names that no object can have.
_OWNED = re.compile(r"([a-z0-9]+):([^:/]+)(?::[^:/]+)?(/.*)?", re.ASCII | re.DOTALL)


def owned_name(kind: str, name: str, uid: str = "") -> str:
    """The name of the gang of an owner's pods. No object can have such a name, so no declared gang has it."""
    return f"{kind.lower()}:{name}:{uid}" if uid else f"{kind.lower()}:{name}"


def shown_name(name: str) -> str:
    """A gang's name as people know it: of one that its owner names the owner's name, and which part of it."""
    found = _OWNED.fullmatch(name) if ":" in name else None
    return legible(f"{found[2]}{found[3] or ''}" if found is not None else name)


def owner_of_name(name: str) -> tuple[str, str]:
    """(Kind in small letters, name) of the owner that names the gang, ("", "") where none does."""
    found = _OWNED.fullmatch(name) if ":" in name else None
    return (found[1], found[2]) if found is not None else ("", "")


class GangKey(msgspec.Struct, frozen=True, order=True, cache_hash=True, gc=False):
    """Which gang. `str` is for people: it leaves out what a name has of its owner's kind and uid, so it is not
    unique; `path` (namespace/name) is."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{shown_name(self.name)}"

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"


class GroupRef(msgspec.Struct, frozen=True, gc=False):
    """The object that declares a gang, so that its status goes back to where the user looks."""

    group: str
    version: str
    kind: str
    plural: str
    namespace: str
    name: str
    uid: str


class Problem(msgspec.Struct, frozen=True, gc=False):
    """Why a gang is held before any node is looked at. `code` is CamelCase and stable, `message` is for people;
    `remedy` is what helps, where the message does not say so."""

    code: str
    message: str
    remedy: str = ""


class GroupClaim(msgspec.Struct, frozen=True):
    """A resource claim that all members of a group share, by the `name` that their own claims refer to.

    `claim` is the ResourceClaim's name, "" while nobody has made it from the ResourceClaimTemplate `template` yet.
    """

    name: str
    claim: str = ""
    template: str = ""


class ExpectedMembers(msgspec.Struct, frozen=True):
    """Members that a gang's leader makes once it runs (Spark's executors), for whom room is held with the leader's.

    `count` of them, each of which asks for `requests`; what is not stated (0, ()) follows from the gang's
    minResources. Whoever has not come `seconds` after the leader got its node is not waited for any longer.
    """

    count: int = 0
    requests: Requests = ()
    seconds: int = 300


class Gang(msgspec.Struct, frozen=True, gc=False):
    """One gang after every declaration of it has been resolved.

    `roles` are the per-role minima. `gang_group` holds the keys of all gangs that must be satisfied together, this
    one included, sorted. `priority` is None where the members' own priorities decide. `min_resources` is a hint
    about the size of the whole group. `timeout` is in seconds, `sla_waiting_time` too: how long the group may
    wait before it goes first (Volcano). `once_satisfied` tells that its API says the
    first quorum was placed (native groups). `problem` holds the gang. `warnings` hold nothing back. `revocable`
    gangs may use nodes that are lent for a time. Of `min_available` and `max_unavailable` members at most one is
    stated: how far a gang may be thinned out for nobody's sake (Volcano's job disruption budget).
    """

    key: GangKey
    uid: str = ""
    rules: GangRules = PLAIN
    source: GroupRef | None = None
    min_member: int = 1
    stated_member: int = 0  # what its object states, where that counts members that cannot exist yet; else 0
    roles: tuple[tuple[str, int], ...] = ()
    match_policy: MatchPolicy = MatchPolicy.WAITING_AND_RUNNING
    gang_group: tuple[GangKey, ...] = ()
    priority: int | None = None
    queue: str = "default"
    min_resources: Requests | None = None
    min_limits: Requests = ()  # what it says of limits, as quotas name them: `limits.cpu`
    timeout: int | None = None
    sla_waiting_time: int | None = None
    created: int = 0
    once_satisfied: bool = False
    admission: bool = False  # has an Inqueue phase: its controller waits for it before it makes pods
    admitted: bool = True  # may take part in allocation (False while such a group's phase is still Pending)
    completed: bool = False  # its phase says that no further member is to come
    owned: bool = False  # another object owns the group and can create further members
    unit: bool = False  # its members may only be disrupted together
    preemptable: bool = True  # False: its owner forbids that its members are evicted for others
    revocable: bool = False
    min_available: Portion | None = None
    max_unavailable: Portion | None = None
    total: int = 0  # how many members its owner means to create, 0 where unknown; never holds the gang back
    problem: Problem | None = None
    warnings: tuple[Problem, ...] = ()
    topology: TopologyRule | None = None  # how close all members have to be
    subgroups: tuple[SubgroupRule, ...] = ()  # parts that have to be closer to each other
    composite: GangKey | None = None  # the group of groups that it is a part of
    workload: str = ""  # the Workload whose template it was made from
    tasks: TaskTopology | None = None  # which of its roles should share nodes
    claims: tuple[GroupClaim, ...] = ()  # what all members share (resource.k8s.io)
    expected: ExpectedMembers | None = None
    # Where those that it expects are gangs of their own: which; and of such a gang, who expects it.
    later_gangs: tuple[GangKey, ...] = ()
    expected_by: GangKey | None = None
    scale_up_delay: int = 0  # seconds for which it stays as it is before further members join
    later: str = ""  # which pods its owner creates only later, in words: the minimum does not count them
    run_time: StatedRunTime = NOTHING_STATED  # what its object says of all its members


class GangCounts(msgspec.Struct, frozen=True):
    """The members of a gang by state. `present` are those that are neither finished, terminating nor gated."""

    pending: int = 0
    gated: int = 0
    other_scheduler: int = 0
    assumed: int = 0
    bound: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0

    @property
    def present(self) -> int:
        return self.pending + self.other_scheduler + self.assumed + self.bound + self.running

    @property
    def active(self) -> int:
        """On a node (or on the way to one) and neither finished nor terminating."""
        return self.assumed + self.bound + self.running
