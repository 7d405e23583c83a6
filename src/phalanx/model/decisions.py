"""What a cycle hands to the executor."""

from __future__ import annotations

import msgspec

from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark
from phalanx.model.verdict import GangVerdict, PodVerdict


class Bind(msgspec.Struct, frozen=True):
    """Put one pod on one node. `gang` is None for a pod on its own. `cause` ties it to the cycle's log lines."""

    uid: str
    namespace: str
    name: str
    node: str
    gang: GangKey | None = None
    mark: PlanMark | None = None
    cause: str = ""


class Admit(msgspec.Struct, frozen=True):
    """Let a group's controller create its pods (Volcano's phase Inqueue)."""

    gang: GangKey


class Plan(msgspec.Struct):
    """The outcome of one cycle, in the order in which it was decided.

    `binds` of one gang (and of one bundle) stand together. `gangs` and `pods` hold verdicts that are news: those
    that differ from what was last said, or that concern members who have not heard it. `complete` is False when
    the time budget ended the cycle early.
    """

    cycle: int
    binds: list[Bind] = []
    admissions: list[Admit] = []
    gangs: list[GangVerdict] = []
    pods: list[PodVerdict] = []
    complete: bool = True
