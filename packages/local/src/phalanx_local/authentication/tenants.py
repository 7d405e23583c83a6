"""Tenants: service accounts with edit rights in one namespace and no other rights."""

from __future__ import annotations

from typing import Final

from phalanx_local.authentication.tokens import AccountTokens
from phalanx_local.authorization.rbac import GROUP
from phalanx_local.errors import invalid, wrong_value
from phalanx_local.objects import Json
from phalanx_local.registry.api import Api
from phalanx_local.validation.names import dns_label

#: Service account of a tenant, and the name of its role binding.
ACCOUNT: Final = "tenant"
_ROLE: Final = "edit"
# Each start of the server issues a new token.
_TOKEN_SECONDS: Final = 365 * 24 * 3600


def admit_tenant(api: Api, tokens: AccountTokens, namespace: str) -> str:
    """Create a tenant's missing namespace, service account and rights, and return the tenant's token. Raise 422 for
    an invalid namespace name."""
    namespaces = api.type("", "namespaces").preferred
    wrong = dns_label(namespace)
    if wrong:
        causes = [wrong_value("metadata.name", namespace, text) for text in wrong]
        raise invalid(namespaces.type, namespace, causes)
    if not api.exists("", "namespaces", "", namespace):
        api.create(namespaces, "", {"metadata": {"name": namespace}}, api.write())
    accounts = api.type("", "serviceaccounts").preferred
    if not api.exists("", "serviceaccounts", namespace, ACCOUNT):
        api.create(accounts, namespace, {"metadata": {"name": ACCOUNT}}, api.write())
    if not api.exists(GROUP, "rolebindings", namespace, ACCOUNT):
        binding: Json = {
            "metadata": {"name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": _ROLE},
        }
        api.create(api.type(GROUP, "rolebindings").preferred, namespace, binding, api.write())
    record = api.record(accounts.type, namespace, ACCOUNT)
    request: Json = {"spec": {"expirationSeconds": _TOKEN_SECONDS}}
    token: str = tokens.issue(record, request, api.write())["status"]["token"]
    return token
