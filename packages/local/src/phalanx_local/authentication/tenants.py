"""Tenants: service accounts, and users with certificates, with edit rights in one namespace and no other rights."""

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
_CERTIFIED: Final = "tenant-certificate"
_ROLE: Final = "edit"
# Each start of the server issues a new token.
_TOKEN_SECONDS: Final = 365 * 24 * 3600


def admit_tenant(api: Api, tokens: AccountTokens, namespace: str) -> str:
    """Create a tenant's missing namespace, service account and rights, and return the tenant's token. Raise 422 for
    an invalid namespace name."""
    _admit_namespace(api, namespace)
    accounts = api.type("", "serviceaccounts").preferred
    if not api.exists("", "serviceaccounts", namespace, ACCOUNT):
        api.create(accounts, namespace, {"metadata": {"name": ACCOUNT}}, api.write())
    _bind(api, namespace, ACCOUNT, {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace})
    record = api.record(accounts.type, namespace, ACCOUNT)
    request: Json = {"spec": {"expirationSeconds": _TOKEN_SECONDS}}
    token: str = tokens.issue(record, request, api.write())["status"]["token"]
    return token


def admit_certified_tenant(api: Api, namespace: str) -> str:
    """Create a tenant's missing namespace, and the rights of its user with a certificate. Return the user's name.
    Raise 422 for an invalid namespace name."""
    _admit_namespace(api, namespace)
    user = f"{ACCOUNT}-{namespace}"
    _bind(api, namespace, _CERTIFIED, {"kind": "User", "apiGroup": GROUP, "name": user})
    return user


def _admit_namespace(api: Api, namespace: str) -> None:
    namespaces = api.type("", "namespaces").preferred
    wrong = dns_label(namespace)
    if wrong:
        causes = [wrong_value("metadata.name", namespace, text) for text in wrong]
        raise invalid(namespaces.type, namespace, causes)
    if not api.exists("", "namespaces", "", namespace):
        api.create(namespaces, "", {"metadata": {"name": namespace}}, api.write())


def _bind(api: Api, namespace: str, name: str, subject: Json) -> None:
    """Create the role binding `name` of a tenant if it does not exist."""
    if api.exists(GROUP, "rolebindings", namespace, name):
        return
    binding: Json = {
        "metadata": {"name": name},
        "subjects": [subject],
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": _ROLE},
    }
    api.create(api.type(GROUP, "rolebindings").preferred, namespace, binding, api.write())
