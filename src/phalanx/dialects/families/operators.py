"""Grouping rules for operators that create pods without a PodGroup: by kind of owner
(`phalanx.dialects.workloads`)."""

from __future__ import annotations

from phalanx.dialects.dialect import AccessRule, Dialect
from phalanx.dialects.run_times.owners import OWNER_KINDS
from phalanx.dialects.workloads.rule import WORKLOAD
from phalanx.dialects.workloads.suspension import SUSPENSION_RULES
from phalanx.dialects.workloads.table import BUILT_IN_RULES

_READ = dict.fromkeys(
    (
        *(rule.kind for rule in BUILT_IN_RULES if rule.kind is not None),
        *(rule.kind for rule in SUSPENSION_RULES if rule.kind is not None),
        # Owners with deadlines for their pods (`phalanx.dialects.run_times`).
        *(kind.key for kind in OWNER_KINDS),
    )
)

WORKLOADS_DIALECT = Dialect(
    "workloads",
    (WORKLOAD,),
    # Read only after a pod of ours needs the kind.
    access=tuple(AccessRule(group, (plural,)) for group, plural in _READ),
    workloads=BUILT_IN_RULES,
)
