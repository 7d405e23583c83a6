"""Naming conventions: the ways in which pods refer to gangs, as data for `GangDeclarations`."""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from phalanx.dialects.core import PodObject
from phalanx.dialects.gangs.extras import Stated
from phalanx.model.gang import GangKey, GangRules, MatchPolicy, Problem


class Precedence(enum.IntEnum):
    """Precedence among several gang names of one pod, lowest first; the order of the dialects breaks ties."""

    FIELD = 0
    OWN = 1
    LABEL = 2
    ANNOTATION = 3
    UNNAMED = 4  # used only for a pod without any name


class InvalidMinimum(enum.Enum):
    """Handling of pods that state an invalid minimum for their gang."""

    HOLD = enum.auto()
    ONE = enum.auto()  # use 1
    POLICY = enum.auto()  # hold, or schedule the pods on their own, as the policy sets (`legacyInvalidMin`)


class MinimumKey(msgspec.Struct, frozen=True):
    """Key under which pods state the minimum. With `name_key`, a key in the same place that names another gang
    voids the minimum; with `needs_name` it must name this gang. Without a `name_key` the minimum counts for this
    naming only."""

    key: str
    name_key: str = ""
    label: bool = False
    needs_name: bool = False


NOT_FOUND = "PodGroupNotFound"


def podgroup_missing(key: GangKey, place: str, native_served: bool) -> Problem:
    """Return the problem of a gang that pods name at `place` and that no object declares."""
    remedy = "create it, or label its pods with pod-group.scheduling.sigs.k8s.io/name and .../min-available instead"
    return Problem.of(NOT_FOUND, f"PodGroup {key} not found", remedy)


class GangNaming(msgspec.Struct, frozen=True, eq=False):
    """One naming convention by which pods refer to their gang.

    The name is the value of one of `labels` or `annotations`, or `read` finds names elsewhere; pods with one of the
    annotations `unless` (key, value) name no gang. Objects of the API groups `objects` have precedence for a name;
    with `needed`, only these count. `missing` returns the message for a gang without a declaration.
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
