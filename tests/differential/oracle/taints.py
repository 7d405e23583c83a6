"""TaintToleration. Sources: pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go,
staging/src/k8s.io/api/core/v1/toleration.go (ToleratesTaint).

Every taint with the effect NoSchedule or NoExecute needs a toleration. Lt and Gt are read although their gate
(TaintTolerationComparisonOperators) is off by default: where the API accepts them, they are intended.
"""

from __future__ import annotations

import re

from tests.differential.oracle.world import Wire, World

# A decimal integer as the API validates it: no plus, no leading zero, no minus zero.
_INTEGER = re.compile(r"^(0|-?[1-9][0-9]*)$")


def objection(world: World, pod: Wire, node: Wire) -> str:
    return "node(s) had untolerated taint" if first_untolerated(pod, node) is not None else ""


def first_untolerated(pod: Wire, node: Wire) -> Wire | None:
    for taint in (node.get("spec") or {}).get("taints") or []:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not is_tolerated(taint, pod):
            found: Wire = taint
            return found
    return None


def is_tolerated(taint: Wire, pod: Wire) -> bool:
    return any(tolerates(entry, taint) for entry in pod["spec"].get("tolerations") or [])


def tolerates(toleration: Wire, taint: Wire) -> bool:
    effect, key = toleration.get("effect", ""), toleration.get("key", "")
    operator, value = toleration.get("operator", "") or "Equal", toleration.get("value", "")
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint.get("key"):
        return False
    if operator == "Exists":
        return True
    if not key:
        return False  # the API takes an empty key with Exists only
    if operator == "Equal":
        return bool(value == taint.get("value", ""))
    if operator in ("Lt", "Gt"):
        bound, actual = _integer(value), _integer(taint.get("value", ""))
        if bound is None or actual is None:
            return False
        return actual < bound if operator == "Lt" else actual > bound
    return False


def _integer(text: str) -> int | None:
    if not _INTEGER.match(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
