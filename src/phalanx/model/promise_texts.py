"""Texts about promised starts that the records alone determine."""

from __future__ import annotations

from phalanx.model.promise_records import Slip
from phalanx.model.text.duration import format_moment


def basis_of(gangs: int, endless: int) -> str:
    sentence = "beside running pods"
    if gangs:
        sentence = (
            "by the run-time limit of a running gang"
            if gangs == 1
            else f"by the run-time limits of {gangs} running gangs"
        )
    if endless:
        sentence += f" ({endless} pod{'s' if endless != 1 else ''} without a known end on other nodes)"
    return sentence


def postponement(slip: Slip) -> str:
    """Return the text of a postponed or lost start, with its cause."""
    cause = slip.cause.value + (f" ({slip.by})" if slip.by else "")
    if not slip.start:
        return f"its start at {format_moment(slip.former)} was lost at {format_moment(slip.when)}: {cause}"
    return f"moved at {format_moment(slip.when)} from {format_moment(slip.former)}: {cause}"
