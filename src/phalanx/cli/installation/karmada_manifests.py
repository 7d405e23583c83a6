"""Manifests of `phalanx install --karmada` for Karmada's API server and of `--karmada-member` for its members."""

from __future__ import annotations

from phalanx.cli.installation.hub_manifests import member_reading
from phalanx.cli.installation.manifests import Manifest, account_with_rights, lease_rules, make_object, make_rule
from phalanx.dialects.dialect import READ
from phalanx.hub.karmada.bindings import BINDINGS, CLUSTERS
from phalanx.hub.karmada.templates import TEMPLATE_KINDS
from phalanx.hub.names import GROUP_KINDS, LEASE_NAMESPACE

#: Service account at Karmada's API server. Its requests reach member clusters under its own name.
ACCOUNT = "phalanx-karmada"


def karmada_access(namespace: str) -> list[Manifest]:
    """Return the scheduler's service account at Karmada's API server, with rights on bindings, templates and
    cluster proxies, without Secrets."""
    plurals: dict[str, list[str]] = {}
    for kind in TEMPLATE_KINDS:
        plurals.setdefault(kind.resource.group, []).append(kind.resource.plural)
    rules = [
        make_rule([BINDINGS.group], [BINDINGS.plural], [*READ, "patch"]),
        make_rule([BINDINGS.group], [f"{BINDINGS.plural}/status"], ["patch"]),
        make_rule([CLUSTERS.group], [CLUSTERS.plural], READ),
        # A read through the proxy is a GET here; the member cluster's RBAC decides about the object.
        make_rule([CLUSTERS.group], [f"{CLUSTERS.plural}/proxy"], ["get"]),
        *(make_rule([group], names, ["get"]) for group, names in plurals.items()),
        make_rule(["events.k8s.io"], ["events"], ["create", "patch"]),
    ]
    account = account_with_rights(ACCOUNT, namespace, rules, (namespace, lease_rules(ACCOUNT)))
    return [make_object("v1", "Namespace", namespace), *account]


def karmada_member_access(namespace: str) -> list[Manifest]:
    """Return the read rights of a forecast in a Karmada member.

    Nothing is written there. The account itself is not created: Karmada's proxy passes its name.
    """
    rules = [
        make_rule([""], ["pods"], READ),
        make_rule([kind.resource.group for kind in GROUP_KINDS], ["podgroups"], READ),
        *member_reading(),
    ]
    records = [make_rule([""], ["configmaps"], READ)]
    account = account_with_rights(ACCOUNT, namespace, rules, (LEASE_NAMESPACE, records))
    return [manifest for manifest in account if manifest["kind"] != "ServiceAccount"]
