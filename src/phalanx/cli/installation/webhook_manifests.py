"""The account of `phalanx webhook`, with the rights that it uses, and no other."""

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
    """A service account for `phalanx webhook`: it reads, asks for rights, and writes its certificates, its
    registration, and which pods it has let use quota while some of it is reserved."""
    account = WEBHOOK
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    registrations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
    rules = [
        make_rule([""], ["namespaces", "resourcequotas"], READ),
        make_rule(["scheduling.volcano.sh"], ["queues", "podgroups"], READ),
        # Who asks for metrics is asked who he is and what he may.
        make_rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
        make_rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
        make_rule(["admissionregistration.k8s.io"], registrations, ["create"]),
        {
            **make_rule(["admissionregistration.k8s.io"], registrations, ["get", "patch", "delete"]),
            "resourceNames": [WEBHOOK],
        },
    ]
    own = {**make_rule([""], ["secrets"], ["get", "update"]), "resourceNames": [CERTIFICATES]}
    # The names are those of namespaces, so they cannot be listed.
    ledgers = make_rule([""], ["configmaps"], ["get", "update"])
    return [
        *account_with_rights(account, namespace, rules, (namespace, [own])),
        make_object(f"{RBAC}/v1", "Role", f"{account}-quota", LEDGER_NAMESPACE, rules=[ledgers]),
        make_binding("Role", f"{account}-quota", subject, LEDGER_NAMESPACE),
        # Without certificates: the first replica puts them in, and installing anew leaves them alone.
        make_object("v1", "Secret", CERTIFICATES, namespace, type="Opaque"),
    ]
