"""Condition of pods and PodGroups that carries the fields of a verdict through the API.

The condition PodScheduled must have kube-scheduler's reason `Unschedulable`, and the conditions of PodGroups
Volcano's reasons. This condition of Phalanx, written by the same request, has the verdict's code as its reason, and
counts and objects as JSON in its message. It contains the last verdict also after the pod is bound, so it costs no
write then. Other conditions show whether the pod or group is pending.
"""

from __future__ import annotations

import re

import msgspec

from phalanx.model.text.decoding import decode_json
from phalanx.model.verdict import Objects, PodShape, Verdict

LAST_VERDICT = "phalanx.dev/LastVerdict"

# Condition reasons of kube-scheduler for pods and of Volcano for groups: each stands for several verdict codes.
_VAGUE = frozenset({"Unschedulable", "NotEnoughResources", "NotEnoughTasks", "NotEnoughPodsOfTask"})
_CODE = re.compile(r"[A-Z][A-Za-z0-9]{0,62}", re.ASCII)
# Limits of a condition, so that a user who can write one cannot slow down its readers.
_MOST_OBJECTS = 16
_LONGEST = 4096
_LONGEST_NAMES = 2048


class VerdictFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields of a verdict in the condition, beside its code. `objects` is None if the objects are unknown, or too
    many."""

    needed: int = 0
    placeable: int = 0
    members: int = 0
    objects: Objects = None
    pod_shapes: tuple[PodShape, ...] = ()


class ToldVerdict(msgspec.Struct, frozen=True):
    """Verdict as decoded from the condition."""

    code: str
    fields: VerdictFields = VerdictFields()


def told_fields(verdict: Verdict) -> str:
    """Return the message of the condition for a verdict."""
    fields = VerdictFields(
        verdict.needed,
        verdict.placeable,
        verdict.members,
        carried_objects(verdict),
        verdict.pod_shapes[:_MOST_OBJECTS],
    )
    return msgspec.json.encode(fields).decode()


def carried_objects(verdict: Verdict) -> Objects:
    """Return the verdict's objects that the condition contains: None for too many, or for names that are too long
    in sum."""
    objects = verdict.objects
    if objects is None or len(objects) > _MOST_OBJECTS:
        return None
    size = sum(len(each.kind) + len(each.namespace) + len(each.name) for each in objects)
    return objects if size <= _LONGEST_NAMES else None


def read_told(reason: object, message: object) -> ToldVerdict | None:
    """Decode the condition; return None if its reason is no verdict code. Fields that cannot be read are
    omitted."""
    if not isinstance(reason, str) or not _CODE.fullmatch(reason):
        return None
    if not isinstance(message, str) or not message or len(message) > _LONGEST:
        return ToldVerdict(reason)
    try:
        fields = decode_json(message, VerdictFields)
    except ValueError:
        return ToldVerdict(reason)
    return ToldVerdict(reason, fields)


def exact_code(reason: str, told: ToldVerdict | None) -> str:
    """Return the verdict code for the reason of a condition: for a reason that stands for several codes, that of
    the last verdict."""
    return told.code if told is not None and reason in _VAGUE else reason


def is_vague(reason: str) -> bool:
    return reason in _VAGUE
