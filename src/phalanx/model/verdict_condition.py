"""The condition that carries a verdict's fields through the API.

PodScheduled must say kube's `Unschedulable`, and the groups of Volcano must say Volcano's words. Beside them stands
a condition of our own, written by the same request: its reason is the code, its message the counts and the objects
as JSON. It holds the last verdict also after the pod is bound, so it costs no write then. Whether something waits
is told by the other conditions.
"""

from __future__ import annotations

import re

import msgspec

from phalanx.model.text.decoding import decode_json
from phalanx.model.verdict import Objects, Verdict

LAST_VERDICT = "phalanx.dev/LastVerdict"

# The words of kube-scheduler for pods and of Volcano for groups: each stands for several codes.
_VAGUE = frozenset({"Unschedulable", "NotEnoughResources", "NotEnoughTasks", "NotEnoughPodsOfTask"})
_CODE = re.compile(r"[A-Z][A-Za-z0-9]{0,62}", re.ASCII)
# A condition is a small thing, and whoever may write one must not keep readers busy.
_MOST_OBJECTS = 16
_LONGEST = 4096
_LONGEST_NAMES = 2048


class VerdictFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """What travels beside the code. `objects` is None where they are not known, or too many."""

    needed: int = 0
    placeable: int = 0
    members: int = 0
    objects: Objects = None


class ToldVerdict(msgspec.Struct, frozen=True):
    """A verdict as it was read back."""

    code: str
    fields: VerdictFields = VerdictFields()


def told_fields(verdict: Verdict) -> str:
    """Return the condition's message."""
    fields = VerdictFields(verdict.needed, verdict.placeable, verdict.members, carried_objects(verdict))
    return msgspec.json.encode(fields).decode()


def carried_objects(verdict: Verdict) -> Objects:
    """Return the objects as the condition has them: None for too many, or for names that are too long in sum."""
    objects = verdict.objects
    if objects is None or len(objects) > _MOST_OBJECTS:
        return None
    size = sum(len(each.kind) + len(each.namespace) + len(each.name) for each in objects)
    return objects if size <= _LONGEST_NAMES else None


def read_told(reason: object, message: object) -> ToldVerdict | None:
    """Read the condition back; None for what is no code. Fields that cannot be read are left out."""
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
    """Return the code behind a condition's reason: that of the last verdict where the reason stands for several."""
    return told.code if told is not None and reason in _VAGUE else reason


def is_vague(reason: str) -> bool:
    return reason in _VAGUE
