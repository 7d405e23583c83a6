"""Target of a request to the API server, in the terms of its audit log."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

READS: Final = frozenset({"get", "list", "watch"})

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]+))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>[^/]+))?)?$"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Asked(NamedTuple):
    """Target of a request.

    `resource` is the plural, with the subresource after a slash: `pods`, `pods/binding`; for paths without an
    object (discovery, /version) the whole path.
    """

    verb: str
    resource: str
    namespace: str
    name: str

    @property
    def writes(self) -> bool:
        return self.verb not in READS


def asked(method: str, path: str, query: str) -> Asked:
    found = _PATH.match(path)
    if found is None:
        return Asked(_VERBS.get(method, "get"), path, "", "")
    name, subresource = found["name"] or "", found["subresource"] or ""
    if method in _VERBS:
        verb = _VERBS[method]
    elif "watch=true" in query:
        verb = "watch"
    else:
        verb = "get" if name else "list"
    resource = f"{found['plural']}/{subresource}" if subresource else found["plural"]
    return Asked(verb, resource, found["namespace"] or "", name)
