"""Grouping rules: the gang membership of one kind of workload's pods, and the source of its size."""

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

# Annotations on an owner that set the minimum, above the computed number, in order of preference.
OWNER_MINIMA = ("phalanx.dev/min-count", "scheduling.volcano.sh/group-min-member", "kai.scheduler/batch-min-member")
# Pairs (key, value) on a pod or its owner that exclude its pods from gangs.
OPT_OUT = (("phalanx.dev/gang", "false"), ("kai.scheduler/skip-podgrouper", "true"))

WORKLOAD = GangNaming(
    # Replacements start one by one, as operators replace lost pods one by one.
    GangRules("workload"),
    MatchPolicy.UNTIL_SCHEDULED,
    Precedence.UNNAMED,
)

# Owners (API group, kind) with PodGroups that can count pods that do not exist yet, or no longer.
STAGED_OWNERS = frozenset(
    {
        ("trainer.kubeflow.org", "TrainJob"),
        ("jobset.x-k8s.io", "JobSet"),
        ("kubeflow.org", "MPIJob"),
        ("ray.io", "RayCluster"),
    }
)

# Owners with PodGroups that include in minResources the requests of a pod that is created once the members run: the
# submitter of a RayJob.
PAYING_AHEAD = frozenset({("ray.io", "RayJob")})

# Owners that can be suspended: then they create no pods, and their PodGroups need no admission.
SUSPENDED_OWNERS = STAGED_OWNERS | {
    ("ray.io", "RayJob"),
    ("sparkoperator.k8s.io", "SparkApplication"),
    ("batch", "Job"),
    *(("kubeflow.org", kind) for kind in ("TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob")),
}

KindKey = tuple[str, str]
"""(API group, plural) of a kind."""


class OwnerFieldError(ValueError):
    """Unreadable field of an owner of pods."""


class WorkloadPart(msgspec.Struct, frozen=True):
    """Pods that an owner creates at the same time: the number still to run, and whether it creates them `now`.
    If not, `later` names the precondition, and `beside` is True if that part still runs then."""

    name: str
    pods: int
    now: bool = True
    later: str = ""
    beside: bool = True


class WorkloadSize(msgspec.Struct, frozen=True):
    """Number of pods of one gang that start together, from the owner's object.

    `gang` is the gang's name; a gang `NAME/PART/REPLICA` has the size of `NAME/PART`. `gang_group` are the gangs
    that start together with it (of the same replica). `later` describes pods that the owner creates only later.

    If the owner creates further pods only once the gang runs, `expected` is their number and `requests` are those
    of each. These pods form the `later_gangs`, which have this gang as `expected_by`.

    `wanted` is the number of pods that the owner wants at present, if only that is known: a minimum that its pods
    state is at most this.

    A size under `group_of` refers to a gang with a PodGroup, which states the size; `parts` are its possible
    members, and `suspended` is the owner's suspension. `submitted` is the user's job whose operator created the
    owner.
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
    wanted: int = 0
    suspended: bool = False

    def gang_group_of(self, key: GangKey) -> tuple[GangKey, ...]:
        """Return the gangs of the same replica that start together with this one."""
        return self._of_replica(key, self.gang_group if len(self.gang_group) <= MOST_GANGS else ())

    def later_gangs_of(self, key: GangKey) -> tuple[GangKey, ...]:
        """Return the gangs of the same replica that this one expects."""
        return self._of_replica(key, self.later_gangs)

    def expected_by_of(self, key: GangKey) -> GangKey | None:
        """Return the gang of the same replica that expects this one."""
        return next(iter(self._of_replica(key, (self.expected_by,))), None) if self.expected_by else None

    def _of_replica(self, key: GangKey, names: tuple[str, ...]) -> tuple[GangKey, ...]:
        parts = key.name.split("/")
        replica = f"/{parts[2]}" if len(parts) > 2 else ""
        return tuple(sorted(GangKey(key.namespace, f"{name}{replica}") for name in names))


class Membership(msgspec.Struct, frozen=True):
    """Gang membership of one pod. `minimum` is the size from the kind's own labels, which applies without an
    object. `kind` is that of the `owner` with the object that states the size; None if there is no object to
    read."""

    gang: str
    owner: str
    role: str = ""
    minimum: Stated | None = None
    kind: KindKey | None = None


class WorkloadRule(msgspec.Struct, frozen=True, eq=False):
    """Grouping rule for the pods of one kind of workload.

    `name` is its name in a policy. The rule applies to pods with one of the `labels` or `annotations`, or with a
    controller of the kinds `controllers`, as (API group, kind); the first rule with a result has precedence.
    `sizes` reads an object of the kind `owner`, without a size for a finished one. Operators of a `staged` kind
    create PodGroups that count pods which do not exist yet.
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
    """Decodes the fields of an owner of pods. Raises OwnerFieldError for invalid ones."""

    def __init__(self, document: Document) -> None:
        metadata = document["metadata"]
        self.name = str(metadata["name"])
        self.uid = str(metadata.get("uid") or "")
        self.controller = controller_of(metadata)
        annotations = metadata.get("annotations")
        self.annotations: Mapping[str, Any] = annotations if isinstance(annotations, Mapping) else {}
        labels = metadata.get("labels")
        self.labels: Mapping[str, Any] = labels if isinstance(labels, Mapping) else {}
        self.spec = _object(document, "spec", "spec")
        status = document.get("status")
        self.status: Mapping[str, Any] = status if isinstance(status, Mapping) else {}

    def opts_out(self) -> bool:
        return any(self.annotations.get(key) == value for key, value in OPT_OUT)

    def stated_minimum(self) -> int | None:
        """Return the gang minimum that an annotation of the owner states; invalid ones are ignored."""
        for key in OWNER_MINIMA:
            text = self.annotations.get(key)
            if isinstance(text, str) and text.isascii() and text.isdecimal() and 1 <= int(text[:12]) <= MAX_WHOLE:
                return int(text)
        return None

    def is_over(self, *conditions: str) -> bool:
        """Return whether one of these conditions of the owner is True, so that it creates no further pods."""
        stated = self.status.get("conditions")
        return any(
            isinstance(condition, Mapping)
            and condition.get("type") in conditions
            and condition.get("status") == "True"
            for condition in (stated if isinstance(stated, list) else ())
        )

    def objects(self, holder: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the elements of the list at the end of a path in the owner's object, each with its own path."""
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
    """Return the number at the end of a path in the owner's object; `default` if it is missing."""
    value = holder.get(path.rpartition(".")[2])
    if value is None:
        return default
    if not is_whole(value) or not 0 <= value <= MAX_WHOLE:
        raise OwnerFieldError(f"{path} is {show(value)}; write a whole number of at least 0, such as 3")
    return value


def requests_of_template(template: Mapping[str, Any]) -> Requests:
    """Return the requests of a pod that a pod template creates; empty if unreadable."""
    try:
        spec = msgspec.convert(template.get("spec") or {}, PodSpec, strict=False)
    except msgspec.ValidationError:
        return ()
    return demand_of(spec).requests


def tied(
    first: WorkloadSize, later: WorkloadSize, count: int, requests: Requests
) -> tuple[WorkloadSize, WorkloadSize]:
    """Let the first of two gangs expect `count` members of the later one; unchanged if their requests are
    unknown."""
    if not requests:
        return first, later
    return (
        msgspec.structs.replace(first, expected=count, requests=requests, later_gangs=(later.gang,)),
        msgspec.structs.replace(later, expected_by=first.gang),
    )


def inner(holder: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return the object at the end of a path in the owner's object; empty if it is missing."""
    return _object(holder, path.rpartition(".")[2], path)


def by_owner(kind: str, name: str, uid: str) -> str:
    """Return the name of the gang of an owner's pods. No object, and thus no declared gang, can have such a
    name."""
    return owned_name(kind, name, uid)


def group_of(uid: str) -> str:
    """Return the key under which gang sizes for PodGroups of this owner are stored; no gang has this name."""
    return f"group-of:{uid}"


def controller_of(metadata: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return (API group, kind, uid) of an object's controller, empty without a controller."""
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, Mapping) and owner.get("controller") is True:
            group = str(owner.get("apiVersion") or "").rpartition("/")[0]
            return group, str(owner.get("kind") or ""), str(owner.get("uid") or "")
    return "", "", ""


def one_gang(
    owner: OwnerReader, kind: str, roles: Mapping[str, int], subgroups: tuple[SubgroupRule, ...] = ()
) -> tuple[WorkloadSize, ...]:
    """Return the size of one gang that contains all pods of an owner, with minima per role; a minimum in an
    annotation has precedence."""
    gang = by_owner(kind, owner.name, owner.uid)
    if owner.opts_out():
        return (WorkloadSize(gang, uid=owner.uid),)
    stated = owner.stated_minimum()
    if stated is not None:
        return (WorkloadSize(gang, stated, subgroups=subgroups, uid=owner.uid),)
    minima = tuple(sorted((role, count) for role, count in roles.items() if count))
    total = max(1, sum(roles.values()))
    return (WorkloadSize(gang, total, minima if len(minima) > 1 else (), subgroups, uid=owner.uid),)


def _object(holder: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise OwnerFieldError(f"{path} is {show(value)}; write an object")
    return value
