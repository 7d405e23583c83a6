"""Service account and access rules of `phalanx webhook`, with minimal rights."""

from __future__ import annotations

from phalanx.admission.webhook.registration import CERTIFICATES
from phalanx.admission.webhook.registration import NAME as WEBHOOK
from phalanx.cli.installation.manifests import (
    RBAC,
    Manifest,
    account_with_rights,
    make_binding,
    make_object,
    make_rule,
)
from phalanx.dialects.dialect import READ
from phalanx.jobs.reservations import LEDGER_NAMESPACE


def webhook_access(namespace: str) -> list[Manifest]:
    """Return the webhook's service account: it reads objects and rights, and writes its certificates, its
    registration, and the ledger of pods admitted against reserved quota."""
    account = WEBHOOK
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    registrations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
    rules = [
        make_rule([""], ["namespaces", "resourcequotas"], READ),
        make_rule(["scheduling.volcano.sh"], ["queues", "podgroups"], READ),
        # Requests for metrics are authenticated and authorized.
        make_rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
        make_rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
        make_rule(["admissionregistration.k8s.io"], registrations, ["create"]),
        {
            **make_rule(["admissionregistration.k8s.io"], registrations, ["get", "patch", "delete"]),
            "resourceNames": [WEBHOOK],
        },
    ]
    own = {**make_rule([""], ["secrets"], ["get", "update"]), "resourceNames": [CERTIFICATES]}
    # The ledger's ConfigMaps are named after namespaces, so RBAC cannot list the names.
    ledgers = make_rule([""], ["configmaps"], ["get", "update"])
    return [
        *account_with_rights(account, namespace, rules, (namespace, [own])),
        make_object(f"{RBAC}/v1", "Role", f"{account}-quota", LEDGER_NAMESPACE, rules=[ledgers]),
        make_binding("Role", f"{account}-quota", subject, LEDGER_NAMESPACE),
        # The Secret is empty: the first replica adds certificates, and a repeated installation does not change
        # them.
        make_object("v1", "Secret", CERTIFICATES, namespace, type="Opaque"),
    ]
