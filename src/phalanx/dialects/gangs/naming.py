"""The ways in which pods name their gangs: data, which one reader goes by (`GangDeclarations`)."""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from phalanx.dialects.core import PodObject
from phalanx.dialects.gangs.extras import Stated
from phalanx.model.gang import GangKey, GangRules, MatchPolicy, Problem


class Precedence(enum.IntEnum):
    """Of the names that one pod states the lowest holds; of equal ones that of the dialect which comes first."""

    FIELD = 0
    OWN = 1
    LABEL = 2
    ANNOTATION = 3
    UNNAMED = 4  # asked only where a pod states no name at all


class InvalidMinimum(enum.Enum):
    """What becomes of pods that state a minimum which is none."""

    HOLD = enum.auto()
    ONE = enum.auto()  # a gang of one
    POLICY = enum.auto()  # held, or pods on their own where the policy says so (`legacyInvalidMin`)


class MinimumKey(msgspec.Struct, frozen=True):
    """Where pods state the minimum. It is no gang's if `name_key`, which stands in the same place, names another
    one; one that `needs_name` only counts where that names this gang. Without a `name_key` it counts for this way
    of naming alone."""

    key: str
    name_key: str = ""
    label: bool = False
    needs_name: bool = False


NOT_FOUND = "PodGroupNotFound"


def podgroup_missing(key: GangKey, place: str, native_served: bool) -> Problem:
    """Return what to tell where pods name a gang that nobody declares; `place` is where they name it."""
    remedy = "create it, or label its pods with pod-group.scheduling.sigs.k8s.io/name and .../min-available instead"
    return Problem.of(NOT_FOUND, f"PodGroup {key} not found", remedy)


class GangNaming(msgspec.Struct, frozen=True, eq=False):
    """One way in which pods say which gang they are in.

    The name stands under one of `labels` or `annotations`, or `read` finds names anywhere else; pods with one of
    the annotations `unless` (key, value) name no gang. `objects` are the API groups whose objects a name means
    first; where an object is `needed` it is one of these or none. `missing` words what is said of a gang that
    nobody declares.
    """

    rules: GangRules
    match_policy: MatchPolicy
    precedence: Precedence
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    read: Callable[[PodObject], tuple[Stated, ...]] | None = None
    unless: tuple[tuple[str, str], ...] = ()
    minima: tuple[MinimumKey, ...] = ()
    invalid_minimum: InvalidMinimum = InvalidMinimum.HOLD
    objects: tuple[str, ...] = ()
    needed: bool = False
    missing: Callable[[GangKey, str, bool], Problem] = podgroup_missing
