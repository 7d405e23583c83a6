"""The account of `phalanx dashboard --login token`, with the rights that it uses, and no other."""

from __future__ import annotations

from phalanx.cli.installation.manifests import (
    LEASE_NAMESPACE,
    RBAC,
    Manifest,
    account_with_rights,
    make_binding,
    make_object,
    make_rule,
    reading_rules,
    records_rule,
)
from phalanx.dialects.api_groups import PHALANX
from phalanx.dialects.dialect import READ

ACCOUNT = "phalanx-dashboard"


def dashboard_access(namespace: str, scheduler_name: str = "phalanx") -> list[Manifest]:
    """A service account that reads what the scheduler reads and has written down, and asks who people are and what
    they may. It writes nothing, and gets no keys: who could read those could forge plan marks."""
    rules = [
        *reading_rules(),
        make_rule([""], ["events", "resourcequotas"], READ),
        make_rule([PHALANX], ["memberclusters", "dispatches"], READ),
        # What would make pods that do not exist.
        make_rule(["batch", "batch.volcano.sh"], ["jobs"], ["get"]),
        make_rule(["apps"], ["replicasets", "statefulsets"], ["get"]),
        make_rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
        make_rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
    ]
    return account_with_rights(ACCOUNT, namespace, rules, (LEASE_NAMESPACE, [records_rule(scheduler_name)]))


def order_access(namespace: str) -> list[Manifest]:
    """What it needs to give orders in its viewers' names. Who has this can be anybody, so it is no part of
    `dashboard_access`: only an operator who switches orders on (--writes) grants it."""
    name = f"{ACCOUNT}-orders"
    rules = [
        make_rule([""], ["users", "groups", "serviceaccounts"], ["impersonate"]),
        # uids, and userextras/KEY for whatever keys a token comes with: RBAC has no pattern for those alone.
        make_rule(["authentication.k8s.io"], ["*"], ["impersonate"]),
    ]
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    return [make_object(f"{RBAC}/v1", "ClusterRole", name, rules=rules), make_binding("ClusterRole", name, subject)]
