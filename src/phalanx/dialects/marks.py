"""The annotation in which a gang's plan leaves its trace on each pod that it binds."""

from __future__ import annotations

import re

from phalanx.model.pod import PlanMark

PLAN_ANNOTATION = "phalanx.dev/gang-plan"
_NUMBER = re.compile(r"[0-9]{1,12}")


def encode_mark(mark: PlanMark) -> str:
    return str(mark)


def decode_mark(text: str) -> PlanMark | None:
    """None where the text is no mark: then the pod is judged as if it had none."""
    plan, *numbers = text.rsplit("/", 2)
    if not plan or len(numbers) != 2 or not all(_NUMBER.fullmatch(number) for number in numbers):
        return None
    size, time = map(int, numbers)
    return PlanMark(plan, size, time) if size >= 1 else None
