"""Resources of an API server and their URL paths."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

from phalanx.model.text.decoding import quoted

__all__ = ["Resource"]


class Resource(msgspec.Struct, frozen=True):
    """One served resource: a plural in a group and version. The core group is the empty string."""

    group: str
    version: str
    plural: str
    kind: str = ""
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Value of ``apiVersion`` in objects of this resource."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of the collection, of one object, or of its subresource.

        Without a namespace, the path of a namespaced resource is the collection over all namespaces; an object
        of it needs the namespace. Names are escaped, so a hostile name cannot leave its path segment.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace and self.namespaced:
            root = f"{root}/namespaces/{_segment(namespace)}"
        elif self.namespaced and name:
            raise ValueError(
                f"{self.plural} {quoted(name)}: an object of a namespaced resource needs its namespace"
            )
        if not name:
            if subresource:
                raise ValueError(f"{self.plural}: subresource {quoted(subresource)} needs the name of an object")
            return f"{root}/{self.plural}"
        path = f"{root}/{self.plural}/{_segment(name)}"
        return f"{path}/{subresource}" if subresource else path


_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*").fullmatch


def _segment(text: str) -> str:
    # The usual name needs no escaping, and this check takes a tenth of the time of quote().
    if _PLAIN(text) is not None:
        return text
    # "." and ".." survive percent-encoding but not path cleaning in proxies; no object has such a name.
    if text in (".", ".."):
        raise ValueError(f"{quoted(text)} cannot be the name of an object")
    return quote(text, safe="")
