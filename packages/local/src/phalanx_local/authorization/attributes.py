"""What a request wants to do, in the words in which rights are written.

https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from phalanx_local.authentication.authenticator import User
from phalanx_local.endpoints.routes import Target
from phalanx_local.errors import Qualified, StatusError, forbidden
from phalanx_local.objects import encode

#: Whoever is in this group may do everything, whatever the roles say.
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
    """One request: about a resource, or, with a `path`, about a URL that is none."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(NamedTuple):
    """Whether a request is allowed, and why (or what kept a binding from being looked at)."""

    allowed: bool
    reason: str = ""


def attributes_of(method: str, path: str, target: Target | None, query: Mapping[str, str]) -> Attributes:
    """What a request to a path asks for."""
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
        # A right within a namespace is a right about this namespace.
        namespace = target.name
    return Attributes(verb, target.group, target.plural, target.subresource.partition("/")[0], namespace, name)


def _selected_name(selector: str) -> str:
    """The one name that a field selector leaves; "" where it leaves several."""
    for term in selector.split(","):
        if term.startswith(_NAME_FIELD):
            return term.removeprefix(_NAME_FIELD).removeprefix("=")
    return ""


class _Resource(NamedTuple):
    group: str
    plural: str
    kind: str = ""


def forbidden_request(user: User, asked: Attributes, reason: str) -> StatusError:
    """403 in the words of the API server."""
    who = encode(_printable(user.name)).decode()
    if asked.path:
        why = f'User {who} cannot {asked.verb} path "{asked.path}"'
    else:
        resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
        why = f'User {who} cannot {asked.verb} resource "{resource}" in API group "{asked.group}" {where}'
    if reason:
        why = f"{why}: {reason}"
    why = _printable(why)
    if asked.path:
        return StatusError(403, "Forbidden", f"forbidden: {why}", {})
    named: Qualified = _Resource(_printable(asked.group), _printable(asked.resource))
    return forbidden(named, _printable(asked.name), why)


def _printable(text: str) -> str:
    """Bytes of a path or header that are no UTF-8 came as lone surrogates, which no answer can hold."""
    return text.encode("utf-8", "replace").decode()
