"""Built-in grouping rules, in order of precedence (docs/rules/jobs.md, A3)."""

from __future__ import annotations

from phalanx.dialects.workloads.applications import DASK, FLINK, SPARK, YUNIKORN
from phalanx.dialects.workloads.grove import POD_GANG
from phalanx.dialects.workloads.kubernetes import JOB, JOBSET, LEADER_WORKER_SET
from phalanx.dialects.workloads.ray import RAY_CLUSTER
from phalanx.dialects.workloads.rule import WorkloadRule
from phalanx.dialects.workloads.training import TRAINING_RULES

BUILT_IN_RULES: tuple[WorkloadRule, ...] = (
    POD_GANG,
    JOBSET,
    LEADER_WORKER_SET,
    RAY_CLUSTER,
    *TRAINING_RULES,
    SPARK,
    FLINK,
    DASK,
    YUNIKORN,
    JOB,
)


def owner_words() -> dict[str, str]:
    """Map user input for a kind of owners (singular or plural) to the kind, all in lower case."""
    words: dict[str, str] = {}
    for rule in BUILT_IN_RULES:
        if rule.owner is not None:
            kind = rule.owner.kind.lower()
            words |= {kind: kind, rule.owner.plural: kind}
        words |= {kind.lower(): kind.lower() for _, kind in rule.controllers}
    return words
