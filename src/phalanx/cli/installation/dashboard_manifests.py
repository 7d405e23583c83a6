"""Service account and access rules of `phalanx dashboard --login token`, with minimal rights."""

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
from phalanx.cli.server.address import AUTHORITY_KEY, NAME, NAMESPACE, URL_KEY
from phalanx.dialects.api_groups import PHALANX
from phalanx.dialects.dialect import READ
from phalanx.jobs.suspended import SUSPENDABLE

ACCOUNT = "phalanx-dashboard"


def dashboard_access(namespace: str, scheduler_name: str = "phalanx") -> list[Manifest]:
    """Return the dashboard's service account, which reads the scheduler's inputs and records, and checks tokens and
    rights of viewers.

    It writes nothing. It cannot read signing keys: their reader could forge plan marks.
    """
    rules = [
        *reading_rules(),
        make_rule([""], ["events", "resourcequotas"], READ),
        make_rule([PHALANX], ["memberclusters", "dispatches"], READ),
        # Owners whose pods do not exist yet, and suspended and failed jobs.
        make_rule(["batch", "batch.volcano.sh"], ["jobs"], READ),
        *(
            make_rule([kind.served.group], [kind.served.plural], READ)
            for kind in SUSPENDABLE
            if kind.served.group != "batch"
        ),
        make_rule(["apps"], ["replicasets", "statefulsets"], ["get"]),
        make_rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
        make_rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
    ]
    return account_with_rights(ACCOUNT, namespace, rules, (LEASE_NAMESPACE, [records_rule(scheduler_name)]))


def address_manifests(url: str, authority: str = "") -> list[Manifest]:
    """Return the ConfigMap with the address of the page's server, and the right of all authenticated users to read
    it. `authority` has the CA certificates of the server (PEM), "" for those of each user's system.

    Commands send the user's token to this address: only administrators can write to kube-public.
    """
    data = {URL_KEY: url} | ({AUTHORITY_KEY: authority} if authority else {})
    config_map = make_object("v1", "ConfigMap", NAME, NAMESPACE, data=data)
    rules = [{**make_rule([""], ["configmaps"], ["get"]), "resourceNames": [NAME]}]
    role = make_object(f"{RBAC}/v1", "Role", f"{ACCOUNT}-address", NAMESPACE, rules=rules)
    everybody = {"kind": "Group", "name": "system:authenticated", "apiGroup": RBAC}
    return [config_map, role, make_binding("Role", f"{ACCOUNT}-address", everybody, NAMESPACE)]


def order_access(namespace: str) -> list[Manifest]:
    """Return the right to impersonate viewers, with which the dashboard executes their commands to gangs (hold,
    release, cancel).

    It allows to act as any user, so it is separate from `dashboard_access` and granted only for --writes.
    """
    name = f"{ACCOUNT}-orders"
    rules = [
        make_rule([""], ["users", "groups", "serviceaccounts"], ["impersonate"]),
        # uids, and userextras/KEY for all keys of a token: RBAC has no pattern that matches only these.
        make_rule(["authentication.k8s.io"], ["*"], ["impersonate"]),
    ]
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    return [make_object(f"{RBAC}/v1", "ClusterRole", name, rules=rules), make_binding("ClusterRole", name, subject)]
