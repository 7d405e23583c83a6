"""Grouping rules that a policy enables: the built-in ones without disabled ones, and its own."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.dialects.dialect import Dialect
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.workloads.rule import WorkloadRule
from phalanx.dialects.workloads.stated import stated_rule


def workload_rules(dialects: Iterable[Dialect], options: DialectOptions) -> tuple[WorkloadRule, ...]:
    """Return the enabled rules; the policy's own rules have precedence."""
    rules = [rule for dialect in dialects for rule in dialect.workloads]
    disabled = options.ungrouped
    enabled = [rule for rule in rules if rule.name not in disabled and "*" not in disabled]
    return (*map(stated_rule, options.workloads), *enabled)
