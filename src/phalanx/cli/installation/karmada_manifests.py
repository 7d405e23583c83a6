"""What `phalanx install --karmada` brings to Karmada's API server, and `--karmada-member` into its members."""

from __future__ import annotations

from phalanx.cli.installation.hub_manifests import member_reading
from phalanx.cli.installation.manifests import Manifest, account_with_rights, lease_rules, make_object, make_rule
from phalanx.dialects.dialect import READ
from phalanx.hub.karmada.bindings import BINDINGS, CLUSTERS
from phalanx.hub.karmada.templates import TEMPLATE_KINDS
from phalanx.hub.names import GROUP_KINDS, LEASE_NAMESPACE

#: The account at Karmada's API server. Its requests reach members in its own name.
ACCOUNT = "phalanx-karmada"


def karmada_access(namespace: str) -> list[Manifest]:
    """At Karmada's API server: bindings, their templates, and the way to its clusters. No Secrets."""
    plurals: dict[str, list[str]] = {}
    for kind in TEMPLATE_KINDS:
        plurals.setdefault(kind.resource.group, []).append(kind.resource.plural)
    rules = [
        make_rule([BINDINGS.group], [BINDINGS.plural], [*READ, "patch"]),
        make_rule([BINDINGS.group], [f"{BINDINGS.plural}/status"], ["patch"]),
        make_rule([CLUSTERS.group], [CLUSTERS.plural], READ),
        # Whatever is read in a cluster is a GET of this; what may be read is said in the cluster.
        make_rule([CLUSTERS.group], [f"{CLUSTERS.plural}/proxy"], ["get"]),
        *(make_rule([group], names, ["get"]) for group, names in plurals.items()),
        make_rule(["events.k8s.io"], ["events"], ["create", "patch"]),
    ]
    account = account_with_rights(ACCOUNT, namespace, rules, (namespace, lease_rules(ACCOUNT)))
    return [make_object("v1", "Namespace", namespace), *account]


def karmada_member_access(namespace: str) -> list[Manifest]:
    """In a member: what a forecast reads. Nothing is written there, and the account need not exist there: Karmada's
    proxy names it."""
    rules = [
        make_rule([""], ["pods"], READ),
        make_rule([kind.resource.group for kind in GROUP_KINDS], ["podgroups"], READ),
        *member_reading(),
    ]
    records = [make_rule([""], ["configmaps"], READ)]
    account = account_with_rights(ACCOUNT, namespace, rules, (LEASE_NAMESPACE, records))
    return [each for each in account if each["kind"] != "ServiceAccount"]
