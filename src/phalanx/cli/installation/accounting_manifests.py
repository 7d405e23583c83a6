"""Service account and access rules of `phalanx accounting run`, with minimal rights."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from phalanx.cli.installation.manifests import LEASE_NAMESPACE, Manifest, account_with_rights, make_rule
from phalanx.daemon.controllers.policy_record import NAME as POLICIES
from phalanx.dialects.devices.claims import ClaimEnricher
from phalanx.dialects.dialect import READ
from phalanx.dialects.families.composites import COMPOSITES
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.registry import Dialects, installed_dialects
from phalanx.dialects.run_times.owners import OWNER_KINDS
from phalanx.dialects.workloads.options import workload_rules
from phalanx.kube.core_resources import DEFINITIONS
from phalanx.kube.own_objects import name_prefix
from phalanx.views.promise_record import NAME as RESERVATIONS


def accounting_access(account: str, namespace: str) -> list[Manifest]:
    """Return the service account of `phalanx accounting run` with read-only rights."""
    # The scheduler names that are served, where no option names them, and promised starts, for notifications.
    names = [POLICIES, f"{name_prefix(('phalanx',))}-{RESERVATIONS}"]
    records = {**make_rule([""], ["configmaps"], ["get"]), "resourceNames": names}
    return account_with_rights(account, namespace, list(_rules()), (LEASE_NAMESPACE, [records]))


def _rules() -> Iterator[Manifest]:
    yield make_rule([""], ["pods", "namespaces"], READ)
    yield make_rule([DEFINITIONS.group], [DEFINITIONS.plural], READ)
    for group, plurals in groupby(sorted(set(_kinds())), key=lambda kind: kind[0]):
        yield make_rule([group], [plural for _, plural in plurals], READ)


def _kinds() -> Iterator[tuple[str, str]]:
    """Yield (API group, plural) of the gangs, queues, pod owners and device claims that the accounting service
    reads."""
    dialects = Dialects(installed_dialects())
    yield from dialects.groups
    yield from dialects.accounts
    for resource in (*ClaimEnricher.kinds, COMPOSITES):
        yield resource.group, resource.plural
    for kind in OWNER_KINDS:
        yield kind.wanted.group, kind.wanted.plural
    for rule in workload_rules(dialects.all, DialectOptions()):
        if rule.owner is not None:
            yield rule.owner.group, rule.owner.plural
