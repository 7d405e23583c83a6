"""One condition of a pod's status, as a patch that touches nothing else."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.kube.timestamps import format_micro_time, format_time, parse_time

__all__ = ["PodCondition", "condition_patch", "format_micro_time", "format_time", "parse_time"]


class PodCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition as it is wanted, or as it was read (what else a read one has does not matter here)."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None

    def says_the_same(self, current: PodCondition | None) -> bool:
        """Whether writing this over ``current`` would change nothing that anybody can see.

        Times do not count. The generation counts only where the server keeps it (it did not before 1.33):
        a server that drops it must not be written to for ever.
        """
        return (
            current is not None
            and (self.type, self.status, self.reason, self.message)
            == (current.type, current.status, current.reason, current.message)
            and (
                self.observed_generation is None
                or current.observed_generation is None
                or self.observed_generation == current.observed_generation
            )
        )


def condition_patch(
    uid: str,
    wanted: PodCondition,
    current: PodCondition | None,
    *,
    now: float,
    nominated_node: str | None = None,
    current_nominated_node: str = "",
) -> bytes | None:
    """The strategic merge patch for ``pods/status``, or None when nothing would change.

    Conditions are merged by type, so the others survive. The uid is a precondition: a successor of the same
    name answers 409. The transition time is set only when the status changes, else the server keeps its own.
    ``nominated_node``: None leaves status.nominatedNodeName alone, "" clears it. ``now`` is Unix seconds.
    """
    nominates = nominated_node is not None and nominated_node != current_nominated_node
    if not nominates and wanted.says_the_same(current):
        return None
    condition: dict[str, Any] = {
        "type": wanted.type,
        "status": wanted.status,
        # Sent even when empty: a text that is left out would stay.
        "reason": wanted.reason,
        "message": wanted.message,
    }
    if wanted.observed_generation is not None:
        condition["observedGeneration"] = wanted.observed_generation
    if current is None or current.status != wanted.status:
        condition["lastTransitionTime"] = format_time(now)
    status: dict[str, Any] = {"conditions": [condition]}
    if nominates:
        status["nominatedNodeName"] = nominated_node or None  # null removes the field
    return msgspec.json.encode({"metadata": {"uid": uid}, "status": status})
