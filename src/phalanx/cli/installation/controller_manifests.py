"""Service account and access rules of `phalanx controllers`, with minimal rights."""

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

# Lease name of `phalanx controllers --leader-elect` (ControllerOptions).
LEASE = "phalanx-controllers"
_WRITE = ("create", "patch", "update", "delete")


def controller_access(account: str, namespace: str) -> list[Manifest]:
    """Return the controllers' service account, which can create pods in all namespaces, like other workload
    controllers."""
    return account_with_rights(account, namespace, list(_rules()), (LEASE_NAMESPACE, lease_rules(LEASE)))


def _rules() -> Iterator[Manifest]:
    yield _all("", ["pods", "services", "configmaps", "persistentvolumeclaims"])
    # Key pairs of a job's pods (plugin ssh); listing Secrets is not needed.
    yield make_rule([""], ["secrets"], ["get", "create"])
    yield make_rule([""], ["resourcequotas", "namespaces"], READ)
    yield _all("networking.k8s.io", ["networkpolicies"])
    yield _all(BATCH, ["jobs"])
    yield make_rule([BATCH], ["cronjobs"], READ)
    yield make_rule([BATCH], ["jobs/status", "cronjobs/status"], ["patch", "update"])
    # Foreground deletion of owners needs this right on API servers that enforce owner references.
    yield make_rule([BATCH], ["jobs/finalizers", "cronjobs/finalizers"], ["update"])
    yield make_rule([FLOW], ["jobflows", "jobtemplates"], READ)
    yield make_rule([FLOW], ["jobflows/status", "jobtemplates/status"], ["patch", "update"])
    yield make_rule([FLOW], ["jobflows/finalizers"], ["update"])
    yield make_rule([BUS], ["commands"], [*READ, "delete"])
    yield _all("scheduling.volcano.sh", ["podgroups"])
    # The webhook has already checked the user's right on the queue, when the job was written
    # (admission/queue_rights).
    yield make_rule(["scheduling.volcano.sh"], ["queues"], [*READ, "patch", "use"])
    yield make_rule(["scheduling.volcano.sh"], ["podgroups/status", "queues/status"], ["patch", "update"])
    yield make_rule(["scheduling.k8s.io"], ["priorityclasses"], READ)
    # Restarts of groups read the groups and their owners, and write the condition of an expected deletion.
    for plural, groups in groupby(sorted((plural, group) for group, plural in Dialects().groups), itemgetter(0)):
        yield make_rule([group for _, group in groups], [plural], [*READ, "patch"])
    yield make_rule([""], ["pods/status"], ["patch"])
    # Definitions are watched because kinds can be installed or removed later.
    yield make_rule(["apiextensions.k8s.io"], ["customresourcedefinitions"], READ)
    for group, plurals in groupby(owner_resources(), key=lambda resource: resource[0]):
        yield make_rule([group], [plural for _, plural in plurals], ["get"])
    # A suspended job in a queue is resumed by an update of its spec.
    for kind in SUSPENDABLE:
        yield make_rule([kind.served.group], [kind.served.plural], [*READ, "update"])
    yield make_rule([""], ["events"], ["create", "get", "patch"])


def _all(group: str, resources: Sequence[str]) -> Manifest:
    return make_rule([group], resources, [*READ, *_WRITE])
