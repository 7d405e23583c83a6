"""The rules of grouping as a policy leaves them: which are switched off, and those that it states itself."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.dialects.dialect import Dialect
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.workloads.rule import WorkloadRule
from phalanx.dialects.workloads.stated import stated_rule


def workload_rules(dialects: Iterable[Dialect], options: DialectOptions) -> tuple[WorkloadRule, ...]:
    """The policy's own rules come first."""
    rules = [rule for dialect in dialects for rule in dialect.workloads]
    off = options.ungrouped
    kept = [rule for rule in rules if rule.name not in off and "*" not in off]
    return (*map(stated_rule, options.workloads), *kept)
