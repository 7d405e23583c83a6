"""What a client accepts and in which form the server answers."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, NamedTuple

from phalanx_local.errors import not_acceptable

JSON: Final = "application/json"
_OFFERED: Final = ("application/json",)
_ANY: Final = ("application/json", "application/*", "*/*", "text/json")


class Form(NamedTuple):
    """`table` and `partial` are of meta.k8s.io in the given version; `discovery` of apidiscovery.k8s.io."""

    shape: Literal["json", "table", "partial", "discovery"]
    version: str = ""


PLAIN: Final = Form("json")


@lru_cache(maxsize=64)
def negotiate(accept: str) -> Form:
    """The first offer of an Accept header that the server can serve. Raises 406 when there is none."""
    if not accept:
        return PLAIN
    for offer in accept.split(","):
        media, *parameters = [part.strip() for part in offer.split(";")]
        if media not in _ANY:
            continue
        given = dict(part.partition("=")[::2] for part in parameters)
        wanted = given.get("as", "")
        if not wanted:
            return PLAIN
        group, version = given.get("g", ""), given.get("v", "")
        if group == "meta.k8s.io" and version in ("v1", "v1beta1"):
            if wanted == "Table":
                return Form("table", version)
            if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
                return Form("partial", version)
        if group == "apidiscovery.k8s.io" and version in ("v2", "v2beta1"):
            return Form("discovery", version)
    raise not_acceptable(_OFFERED)
