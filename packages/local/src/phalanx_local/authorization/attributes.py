"""Attributes of a request for authorization: verb, resource, namespace.

https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from phalanx_local.authentication.authenticator import User
from phalanx_local.endpoints.routes import Target
from phalanx_local.errors import Qualified, StatusError, forbidden
from phalanx_local.objects import encode

#: Group whose members have all rights, independent of roles.
SUPERUSERS: Final = "system:masters"

_VERBS: Final = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_ON_COLLECTIONS: Final = {"get": "list", "delete": "deletecollection"}
_NAME_FIELD: Final = "metadata.name="


class Attributes(NamedTuple):
    """Attributes of one request: about a resource, or with `path` about a non-resource URL."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(NamedTuple):
    """Decision about a request, with the reason (or the bindings whose roles do not exist)."""

    allowed: bool
    reason: str = ""


def attributes_of(method: str, path: str, target: Target | None, query: Mapping[str, str]) -> Attributes:
    """Return the verb, resource, namespace and name of a request, for authorization."""
    if target is None or not target.plural:
        return Attributes(_VERBS.get(method, "") if method != "HEAD" else "head", path=path)
    verb, name, namespace = _VERBS.get(method, ""), target.name, target.namespace
    if not name:
        verb = _ON_COLLECTIONS.get(verb, verb)
        if verb == "list" and query.get("watch") in ("true", "1"):
            verb = "watch"
        if verb in ("list", "watch", "deletecollection") and query.get("fieldSelector"):
            name = _selected_name(query["fieldSelector"])
    if target.plural == "namespaces" and not target.group:
        # Rights within a namespace include rights about the namespace itself.
        namespace = target.name
    return Attributes(verb, target.group, target.plural, target.subresource.partition("/")[0], namespace, name)


def _selected_name(selector: str) -> str:
    """Return the name to which a field selector on metadata.name restricts the request; "" without such a
    selector."""
    for term in selector.split(","):
        if term.startswith(_NAME_FIELD):
            return term.removeprefix(_NAME_FIELD).removeprefix("=")
    return ""


class _Resource(NamedTuple):
    group: str
    plural: str
    kind: str = ""


def forbidden_request(user: User, asked: Attributes, reason: str) -> StatusError:
    """Return the 403 for a user without the right to make a request, with the message of kube-apiserver."""
    quoted_user = encode(_printable(user.name)).decode()
    if asked.path:
        message = f'User {quoted_user} cannot {asked.verb} path "{asked.path}"'
    else:
        resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
        message = (
            f'User {quoted_user} cannot {asked.verb} resource "{resource}" in API group "{asked.group}" {scope}'
        )
    if reason:
        message = f"{message}: {reason}"
    message = _printable(message)
    if asked.path:
        return StatusError(403, "Forbidden", f"forbidden: {message}", {})
    named: Qualified = _Resource(_printable(asked.group), _printable(asked.resource))
    return forbidden(named, _printable(asked.name), message)


def _printable(text: str) -> str:
    """Replace lone surrogates (bytes of a path or header outside of UTF-8), which no response can contain."""
    return text.encode("utf-8", "replace").decode()
