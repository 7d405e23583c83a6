"""Gangs: pods that start together or not at all, and gang groups of gangs that start together."""

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

# Each further gang of a gang group makes the search more expensive, while all other units wait.
MOST_GANGS = 32
# Maximum number of expected members for which one leader can reserve capacity.
MOST_EXPECTED = 5000


class GangRules(msgspec.Struct, frozen=True):
    """Rules for a gang that depend on the kind of its declaration.

    `name` is the name of the declaration in policies. With native rules, members above the minimum behave as in
    Kubernetes' own groups: each preempts for itself and must use its gang's domain from the start. `native` gangs
    are declared by such a group, which has its own priority and claims for its members. `alone`: only the pods
    declare the gang, without a group object.
    """

    name: str = ""
    by_native_rules: bool = False
    native: bool = False
    alone: bool = False

    def match_policy_setting(self, policy: MatchPolicy) -> str:
        """Return the setting that gives all gangs of this declaration a match policy; "" without a name."""
        return f"phalanx.dialects.matchPolicies: {{{self.name}: {policy}}}" if self.name else ""


PLAIN = GangRules()


class MatchPolicy(enum.StrEnum):
    """Choice of the members that count towards the quorum, by their state (docs/rules/coscheduling.md, section
    1.5)."""

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    WAITING_RUNNING_SUCCEEDED = "waiting-running-succeed"
    ONCE_SATISFIED = "once-satisfied"
    # Like waiting-and-running until the first quorum; then members are placed one by one while a member is left.
    UNTIL_SCHEDULED = "until-scheduled"


# KIND:OWNER, or KIND:OWNER:UID, with an optional part of the owner: names that no object can have.
_OWNED = re.compile(r"([a-z0-9]+):([^:/]+)(?::[^:/]+)?(/.*)?", re.ASCII | re.DOTALL)


def owned_name(kind: str, name: str, uid: str = "") -> str:
    """Return the name of the gang that an owner's pods form. It is no valid object name, so no declared gang has
    it."""
    return f"{kind.lower()}:{name}:{uid}" if uid else f"{kind.lower()}:{name}"


def shown_name(name: str) -> str:
    """Return the display name of a gang by its internal name: for gangs of an owner, the owner's name and the part
    of it."""
    match = _OWNED.fullmatch(name) if ":" in name else None
    return legible(f"{match[2]}{match[3] or ''}" if match is not None else name)


def owner_of_name(name: str) -> tuple[str, str]:
    """Return the owner that a gang's internal name contains, as (kind in lower case, name); ("", "") if there is
    none."""
    match = _OWNED.fullmatch(name) if ":" in name else None
    return (match[1], match[2]) if match is not None else ("", "")


def part_of_name(name: str) -> str:
    """Return the part of its owner that a gang's internal name contains; "" if the owner has one gang, or the name
    contains no owner."""
    found = _OWNED.fullmatch(name) if ":" in name else None
    return legible((found[3] or "").removeprefix("/")) if found is not None else ""


class GangKey(msgspec.Struct, frozen=True, order=True, cache_hash=True, gc=False):
    """Key of a gang. `str` is for display: it omits the owner's kind and uid, so it is not unique; `path`
    (namespace/name) is unique.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{shown_name(self.name)}"

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"


class GroupRef(msgspec.Struct, frozen=True, gc=False):
    """Reference to the object that declares a gang, for its status."""

    group: str
    version: str
    kind: str
    plural: str
    namespace: str
    name: str
    uid: str


class Problem(msgspec.Struct, frozen=True, gc=False):
    """Reason why a gang is blocked before any node is checked, or why an account accepts no pods.

    `code` is CamelCase and stable, `message` is for users. `remedy` is the fix; if the message ends with it,
    `wrong` is the message without it. `waits` is True if the message itself says what the gang waits for.
    """

    code: str
    message: str
    remedy: str = ""
    wrong: str = ""
    waits: bool = False

    @classmethod
    def of(cls, code: str, wrong: str, remedy: str, *, waits: bool = False) -> Problem:
        """Return a problem whose message consists of the fault `wrong` and the fix `remedy`."""
        return cls(code, f"{wrong}; {remedy}", remedy, wrong, waits)

    @property
    def state(self) -> str:
        """Fault without the remedy, for messages."""
        return self.wrong or self.message


class GroupClaim(msgspec.Struct, frozen=True):
    """ResourceClaim that all members of a gang share, by the `name` in the members' pod specs.

    `claim` is the name of the ResourceClaim, "" until it is created from the ResourceClaimTemplate `template`.
    """

    name: str
    claim: str = ""
    template: str = ""


class ExpectedMembers(msgspec.Struct, frozen=True):
    """Members that a gang's leader creates after its start (Spark executors); capacity is reserved with the
    leader.

    There are `count` members with `requests` each; unset values (0, ()) follow from the gang's minResources. The
    reservation of a member that does not exist `seconds` after the leader's binding ends.
    """

    count: int = 0
    requests: Requests = ()
    seconds: int = 300


class GangOwner(msgspec.Struct, frozen=True, gc=False):
    """Job whose pods form a gang. `kind` is a word as returned by `phalanx.model.gang_names.kind_word`; `uid` is ""
    if only labels name the job."""

    kind: str
    name: str
    uid: str = ""


class Gang(msgspec.Struct, frozen=True, gc=False):
    """One gang after all of its declarations are resolved.

    `roles` are the minima per role. `gang_group` contains the keys of all gangs that must be satisfied together,
    including this one, sorted. `priority` is None if the members' own priorities decide. `min_resources` is a
    hint about the size of the whole group. `timeout` is in seconds, as is `sla_waiting_time`: the time after
    which the gang is ordered first (Volcano). `once_satisfied`: the API shows that the first quorum was placed
    (native groups). `problem` blocks the gang; `warnings` do not. `revocable` gangs can use nodes that are lent
    for a time. At most one of `min_available` and `max_unavailable` is set: the limit of voluntary evictions
    (Volcano's job disruption budget).
    """

    key: GangKey
    uid: str = ""
    rules: GangRules = PLAIN
    source: GroupRef | None = None
    min_member: int = 1
    stated_member: int = 0  # minMember of its object, if that counts members that cannot exist yet; else 0
    roles: tuple[tuple[str, int], ...] = ()
    match_policy: MatchPolicy = MatchPolicy.WAITING_AND_RUNNING
    gang_group: tuple[GangKey, ...] = ()
    priority: int | None = None
    queue: str = "default"
    min_resources: Requests | None = None
    min_limits: Requests = ()  # minimum of limits, with the names of quotas: `limits.cpu`
    timeout: int | None = None
    sla_waiting_time: int | None = None
    created: int = 0
    once_satisfied: bool = False
    admission: bool = False  # has an Inqueue phase: its controller waits for it before it creates pods
    admitted: bool = True  # can be allocated (False while the phase of such a group is Pending)
    admitted_at: int = 0  # time of an admission after which no member had a node, in seconds; 0 if it is unknown
    completed: bool = False  # its phase says that no further member is to come
    suspended: bool = False  # its owner is suspended: it creates no members until it is resumed
    owned: bool = False  # another object owns the group and can create further members
    unit: bool = False  # its members are disrupted only together
    preemptable: bool = True  # False: its owner forbids the eviction of its members for other pods
    revocable: bool = False
    min_available: Portion | None = None
    max_unavailable: Portion | None = None
    generated: bool = False  # a controller wrote its object: users do not edit its fields
    total: int = 0  # number of members that its owner will create, 0 if unknown; never blocks the gang
    problem: Problem | None = None
    warnings: tuple[Problem, ...] = ()
    topology: TopologyRule | None = None  # topology of all members
    subgroups: tuple[SubgroupRule, ...] = ()  # parts with a narrower topology
    composite: GangKey | None = None  # parent composite
    workload: str = ""  # Workload of its template
    tasks: TaskTopology | None = None  # roles that prefer to share nodes
    claims: tuple[GroupClaim, ...] = ()  # claims that all members share (resource.k8s.io)
    expected: ExpectedMembers | None = None
    # Gangs of its expected members, if they are separate gangs; and the gang that expects this one.
    later_gangs: tuple[GangKey, ...] = ()
    expected_by: GangKey | None = None
    scale_up_delay: int = 0  # delay in seconds before additional members are placed
    later: str = ""  # description of pods that the owner creates later: the minimum does not count them
    run_time: StatedRunTime = NOTHING_STATED  # run time that its object states for all members
    owner: GangOwner | None = None  # the user's job, if its name does not follow from the key
    shown: str = ""  # name in views and messages, "" if it is `shown_name` of the key

    @property
    def title(self) -> str:
        """Name of the gang in messages: NAMESPACE/NAME."""
        return f"{self.key.namespace}/{self.shown}" if self.shown else str(self.key)


def share_of(number: int, needed: int, noun: str = "required pod") -> str:
    """Return the number of pods as `only 2 of the 3 required pods`, `0 of the 3 required pods` or `3 of the 3
    required pods`."""
    only = "only " if 0 < number < needed else ""
    return f"{only}{number} of the {needed} {noun}{'' if needed == 1 else 's'}"


class GangCounts(msgspec.Struct, frozen=True):
    """Numbers of a gang's members by state. `present` members are neither finished, terminating nor gated."""

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
        """Number of members that are on a node (or assumed) and neither finished nor terminating."""
        return self.assumed + self.bound + self.running
