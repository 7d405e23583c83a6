"""Negotiation of the response format from the Accept header."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, NamedTuple

from phalanx_local.errors import not_acceptable

JSON: Final = "application/json"
_OFFERED: Final = ("application/json",)
_ANY: Final = ("application/json", "application/*", "*/*", "text/json")


class Form(NamedTuple):
    """Format of a response: `table` and `partial` of meta.k8s.io in the given version; `discovery` of
    apidiscovery.k8s.io."""

    shape: Literal["json", "table", "partial", "discovery"]
    version: str = ""


PLAIN: Final = Form("json")


@lru_cache(maxsize=64)
def negotiate(accept: str) -> Form:
    """Return the first response format of an Accept header that the server supports. Raise 406 if it supports
    none."""
    if not accept:
        return PLAIN
    for offer in accept.split(","):
        media, *parameters = [part.strip() for part in offer.split(";")]
        if media not in _ANY:
            continue
        options = dict(part.partition("=")[::2] for part in parameters)
        wanted = options.get("as", "")
        if not wanted:
            return PLAIN
        group, version = options.get("g", ""), options.get("v", "")
        if group == "meta.k8s.io" and version in ("v1", "v1beta1"):
            if wanted == "Table":
                return Form("table", version)
            if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
                return Form("partial", version)
        if group == "apidiscovery.k8s.io" and version in ("v2", "v2beta1"):
            return Form("discovery", version)
    raise not_acceptable(_OFFERED)
