"""The account of `phalanx controllers`, with the rights that it uses, and no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from phalanx.cli.installation.manifests import (
    LEASE_NAMESPACE,
    Manifest,
    account_with_rights,
    lease_rules,
    make_rule,
)
from phalanx.controllers.groups.owners import owner_resources
from phalanx.dialects.dialect import READ
from phalanx.dialects.registry import Dialects
from phalanx.jobs.spec import BATCH, BUS, FLOW
from phalanx.jobs.suspended import SUSPENDABLE

# What `phalanx controllers --leader-elect` calls its lease (ControllerOptions).
LEASE = "phalanx-controllers"
_WRITE = ("create", "patch", "update", "delete")


def controller_access(account: str, namespace: str) -> list[Manifest]:
    """It may make pods everywhere: who may write Jobs somewhere has pods made there, as with any controller."""
    return account_with_rights(account, namespace, list(_rules()), (LEASE_NAMESPACE, lease_rules(LEASE)))


def _rules() -> Iterator[Manifest]:
    yield _all("", ["pods", "services", "configmaps", "persistentvolumeclaims"])
    # The key pair of a job's pods (plugin ssh). Listing them is not needed.
    yield make_rule([""], ["secrets"], ["get", "create"])
    yield make_rule([""], ["resourcequotas", "namespaces"], READ)
    yield _all("networking.k8s.io", ["networkpolicies"])
    yield _all(BATCH, ["jobs"])
    yield make_rule([BATCH], ["cronjobs"], READ)
    yield make_rule([BATCH], ["jobs/status", "cronjobs/status"], ["patch", "update"])
    # Owners that hold up their deletion until what they own is gone need this where the API server enforces it.
    yield make_rule([BATCH], ["jobs/finalizers", "cronjobs/finalizers"], ["update"])
    yield make_rule([FLOW], ["jobflows", "jobtemplates"], READ)
    yield make_rule([FLOW], ["jobflows/status", "jobtemplates/status"], ["patch", "update"])
    yield make_rule([FLOW], ["jobflows/finalizers"], ["update"])
    yield make_rule([BUS], ["commands"], [*READ, "delete"])
    yield _all("scheduling.volcano.sh", ["podgroups"])
    # Who may use which queue was asked when what jobs are made of was written (admission/queue_rights).
    yield make_rule(["scheduling.volcano.sh"], ["queues"], [*READ, "patch", "use"])
    yield make_rule(["scheduling.volcano.sh"], ["podgroups/status", "queues/status"], ["patch", "update"])
    yield make_rule(["scheduling.k8s.io"], ["priorityclasses"], READ)
    # Restarts of groups: the groups, who owns their pods, and the condition that excuses a deletion.
    for plural, groups in groupby(sorted((plural, group) for group, plural in Dialects().groups), itemgetter(0)):
        yield make_rule([group for _, group in groups], [plural], [*READ, "patch"])
    yield make_rule([""], ["pods/status"], ["patch"])
    # Which kinds come and go.
    yield make_rule(["apiextensions.k8s.io"], ["customresourcedefinitions"], READ)
    for group, plurals in groupby(owner_resources(), key=lambda each: each[0]):
        yield make_rule([group], [plural for _, plural in plurals], ["get"])
    # Suspended jobs that wait in a queue are written back when it is their turn.
    for kind in SUSPENDABLE:
        yield make_rule([kind.served.group], [kind.served.plural], [*READ, "update"])
    yield make_rule([""], ["events"], ["create", "get", "patch"])


def _all(group: str, resources: Sequence[str]) -> Manifest:
    return make_rule([group], resources, [*READ, *_WRITE])
