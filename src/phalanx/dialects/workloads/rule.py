"""What a rule of grouping is: how the pods of one kind of workload know their gang, and who says how many start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from phalanx.dialects.core import PodObject, PodSpec
from phalanx.dialects.gangs.extras import Stated
from phalanx.dialects.gangs.naming import GangNaming, Precedence
from phalanx.dialects.kinds import WantedKind
from phalanx.dialects.pods.requests import demand_of
from phalanx.dialects.reader import MAX_WHOLE, Document, is_whole, show
from phalanx.model.gang import MOST_GANGS, GangKey, GangOwner, GangRules, MatchPolicy, owned_name
from phalanx.model.resources import Requests
from phalanx.model.topology import SubgroupRule

# Above the smallest number for a minimum on an owner, in the order of preference.
OWNER_MINIMA = ("phalanx.dev/min-count", "scheduling.volcano.sh/group-min-member", "kai.scheduler/batch-min-member")
# (key, value) on a pod or its owner: its pods are on their own.
OPT_OUT = (("phalanx.dev/gang", "false"), ("kai.scheduler/skip-podgrouper", "true"))

WORKLOAD = GangNaming(
    # Replacements come singly, as operators replace the pods that they lose.
    GangRules("workload"),
    MatchPolicy.UNTIL_SCHEDULED,
    Precedence.UNNAMED,
)

# (API group, kind) of the owners whose PodGroups may count pods that exist only later, or no more.
STAGED_OWNERS = frozenset(
    {
        ("trainer.kubeflow.org", "TrainJob"),
        ("jobset.x-k8s.io", "JobSet"),
        ("kubeflow.org", "MPIJob"),
        ("ray.io", "RayCluster"),
    }
)

# Those whose PodGroups have in their minResources what is asked for by a pod that is created when the members run:
# the submitter of a RayJob.
PAYING_AHEAD = frozenset({("ray.io", "RayJob")})

KindKey = tuple[str, str]
"""(API group, plural) of a kind."""


class OwnerFieldError(ValueError):
    """A field of an owner from which nothing can be read."""


class WorkloadPart(msgspec.Struct, frozen=True):
    """Pods that an owner creates at the same time: how many are still to run, and whether it creates them `now`.
    If not, `later` says after what, and `beside` whether that still runs then."""

    name: str
    pods: int
    now: bool = True
    later: str = ""
    beside: bool = True


class WorkloadSize(msgspec.Struct, frozen=True):
    """How many pods of one gang start together, as the owner's object says it.

    Of pods that the owner creates only when those of the gang run so many are `expected`, each of which asks for
    `requests`: they are `later_gangs`, each of which is `expected_by` this one.

    `gang` is the gang's name, of which `NAME/PART/REPLICA` shares what is said of `NAME/PART`. `gang_group` names
    the gangs that start with it (of the same replica). `later` tells which pods the owner creates only later.

    Of a gang named by `group_of` a PodGroup states the size; `parts` are what it may count. `submitted` is the job
    that a user wrote and whose operator made the owner.
    """

    gang: str
    min_member: int = 1
    roles: tuple[tuple[str, int], ...] = ()
    subgroups: tuple[SubgroupRule, ...] = ()
    gang_group: tuple[str, ...] = ()
    later: str = ""
    uid: str = ""
    parts: tuple[WorkloadPart, ...] = ()
    expected: int = 0
    requests: Requests = ()
    later_gangs: tuple[str, ...] = ()
    expected_by: str = ""
    submitted: GangOwner | None = None

    def gang_group_of(self, key: GangKey) -> tuple[GangKey, ...]:
        """The gangs of the same replica that start together with the one of this key."""
        return self._of_replica(key, self.gang_group if len(self.gang_group) <= MOST_GANGS else ())

    def later_gangs_of(self, key: GangKey) -> tuple[GangKey, ...]:
        """Those of the same replica that it expects."""
        return self._of_replica(key, self.later_gangs)

    def expected_by_of(self, key: GangKey) -> GangKey | None:
        """Who of the same replica expects it."""
        return next(iter(self._of_replica(key, (self.expected_by,))), None) if self.expected_by else None

    def _of_replica(self, key: GangKey, names: tuple[str, ...]) -> tuple[GangKey, ...]:
        parts = key.name.split("/")
        replica = f"/{parts[2]}" if len(parts) > 2 else ""
        return tuple(sorted(GangKey(key.namespace, f"{name}{replica}") for name in names))


class Membership(msgspec.Struct, frozen=True):
    """What one pod tells of its gang. `minimum` is what the kind's own labels say, which holds where no object
    does. `kind` is that of the `owner` whose object says more; None: there is nothing to read."""

    gang: str
    owner: str
    role: str = ""
    minimum: Stated | None = None
    kind: KindKey | None = None


class WorkloadRule(msgspec.Struct, frozen=True, eq=False):
    """How the pods of one kind of workload are grouped.

    `name` is what a policy calls it. The rule is asked about pods with one of the `labels` or `annotations`, or
    whose controller is of one of the kinds `controllers`, given as (API group, kind); of several rules the first
    that answers holds. `sizes` reads an object of the kind `owner`; None for one that is over. Of a `staged` kind
    operators make PodGroups that count pods which exist only later.
    """

    name: str
    member: Callable[[PodObject], Membership | None]
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    controllers: tuple[tuple[str, str], ...] = ()
    owner: WantedKind | None = None
    sizes: Callable[[OwnerReader], tuple[WorkloadSize, ...]] | None = None
    staged: bool = False

    @property
    def kind(self) -> KindKey | None:
        return (self.owner.group, self.owner.plural) if self.owner is not None else None


class OwnerReader:
    """The fields of an owner. Raises OwnerFieldError for those that are not what they should be."""

    def __init__(self, document: Document) -> None:
        metadata = document["metadata"]
        self.name = str(metadata["name"])
        self.uid = str(metadata.get("uid") or "")
        self.controller = controller_of(metadata)
        annotations = metadata.get("annotations")
        self.annotations: Mapping[str, Any] = annotations if isinstance(annotations, Mapping) else {}
        self.spec = _object(document, "spec", "spec")
        status = document.get("status")
        self.status: Mapping[str, Any] = status if isinstance(status, Mapping) else {}

    def opts_out(self) -> bool:
        return any(self.annotations.get(key) == value for key, value in OPT_OUT)

    def stated_minimum(self) -> int | None:
        """What an annotation says. One that is no number says nothing."""
        for key in OWNER_MINIMA:
            text = self.annotations.get(key)
            if isinstance(text, str) and text.isascii() and text.isdecimal() and 1 <= int(text[:12]) <= MAX_WHOLE:
                return int(text)
        return None

    def is_over(self, *conditions: str) -> bool:
        """Whether one of the conditions is True: no pods come any more."""
        stated = self.status.get("conditions")
        return any(
            isinstance(each, Mapping) and each.get("type") in conditions and each.get("status") == "True"
            for each in (stated if isinstance(stated, list) else ())
        )

    def objects(self, holder: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The elements of the list at the end of a path, each with its own path."""
        items = holder.get(path.rpartition(".")[2])
        if items is None:
            return
        if not isinstance(items, list):
            raise OwnerFieldError(f"{path} is {show(items)}; write a list")
        for place, item in enumerate(items):
            if not isinstance(item, Mapping):
                raise OwnerFieldError(f"{path}[{place}] is {show(item)}; write an object")
            yield f"{path}[{place}]", item


def whole(holder: Mapping[str, Any], path: str, default: int = 0) -> int:
    """The number at the end of a path; `default` where none is stated."""
    value = holder.get(path.rpartition(".")[2])
    if value is None:
        return default
    if not is_whole(value) or not 0 <= value <= MAX_WHOLE:
        raise OwnerFieldError(f"{path} is {show(value)}; write a whole number of at least 0, such as 3")
    return value


def requests_of_template(template: Mapping[str, Any]) -> Requests:
    """What a pod of a template asks for; nothing where that cannot be read."""
    try:
        spec = msgspec.convert(template.get("spec") or {}, PodSpec, strict=False)
    except msgspec.ValidationError:
        return ()
    return demand_of(spec).requests


def tied(
    first: WorkloadSize, later: WorkloadSize, count: int, requests: Requests
) -> tuple[WorkloadSize, WorkloadSize]:
    """The first of two gangs expects so many members of the later one; where nobody knows what these ask for both
    stay as they are."""
    if not requests:
        return first, later
    return (
        msgspec.structs.replace(first, expected=count, requests=requests, later_gangs=(later.gang,)),
        msgspec.structs.replace(later, expected_by=first.gang),
    )


def inner(holder: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The object at the end of a path, empty where there is none."""
    return _object(holder, path.rpartition(".")[2], path)


def by_owner(kind: str, name: str, uid: str) -> str:
    """The name of the gang of an owner's pods. No object can have such a name, so no declared gang has it."""
    return owned_name(kind, name, uid)


def group_of(uid: str) -> str:
    """The name under which the owner of a PodGroup tells what the group may count; no gang is called so."""
    return f"group-of:{uid}"


def controller_of(metadata: Mapping[str, Any]) -> tuple[str, str, str]:
    """(API group, kind, uid) of an object's controller, empty where it has none."""
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, Mapping) and owner.get("controller") is True:
            group = str(owner.get("apiVersion") or "").rpartition("/")[0]
            return group, str(owner.get("kind") or ""), str(owner.get("uid") or "")
    return "", "", ""


def one_gang(
    owner: OwnerReader, kind: str, roles: Mapping[str, int], subgroups: tuple[SubgroupRule, ...] = ()
) -> tuple[WorkloadSize, ...]:
    """All pods of an owner as one gang, as many of each role as stated; what annotations say of the number comes
    first."""
    gang = by_owner(kind, owner.name, owner.uid)
    if owner.opts_out():
        return (WorkloadSize(gang, uid=owner.uid),)
    stated = owner.stated_minimum()
    if stated is not None:
        return (WorkloadSize(gang, stated, subgroups=subgroups, uid=owner.uid),)
    least = tuple(sorted((role, count) for role, count in roles.items() if count))
    total = max(1, sum(roles.values()))
    return (WorkloadSize(gang, total, least if len(least) > 1 else (), subgroups, uid=owner.uid),)


def _object(holder: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise OwnerFieldError(f"{path} is {show(value)}; write an object")
    return value
