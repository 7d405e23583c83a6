"""Operators that make pods and no group: rules by the kinds of owners (`phalanx.dialects.workloads`)."""

from __future__ import annotations

from phalanx.dialects.dialect import AccessRule, Dialect
from phalanx.dialects.run_times.owners import OWNER_KINDS
from phalanx.dialects.workloads.rule import WORKLOAD
from phalanx.dialects.workloads.table import BUILT_IN_RULES

_READ = dict.fromkeys(
    (
        *(rule.kind for rule in BUILT_IN_RULES if rule.kind is not None),
        # Those that end their pods (`phalanx.dialects.run_times`).
        *(kind.key for kind in OWNER_KINDS),
    )
)

WORKLOADS_DIALECT = Dialect(
    "workloads",
    (WORKLOAD,),
    # Read only once a pod of ours needs the kind.
    access=tuple(AccessRule(group, (plural,)) for group, plural in _READ),
    workloads=BUILT_IN_RULES,
)
