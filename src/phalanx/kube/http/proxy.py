"""Choice of the HTTP proxy for an API server, by the environment variables that kubectl reads."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

__all__ = ["environment_proxy"]

_PORTS = {"http": 80, "https": 443}


def environment_proxy(server: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy URL for ``server``, or None. HTTPS_PROXY/HTTP_PROXY by scheme, minus NO_PROXY and loopback.

    NO_PROXY entries are host names (which cover their subdomains), ``.suffix`` or ``*.suffix`` (subdomains
    only), addresses, CIDR blocks, each with an optional port, or ``*``. The rules are those of Go's
    httpproxy package, so that a cluster is reached in the same way as by kubectl.
    """
    parts = urlsplit(server)
    host, scheme = (parts.hostname or "").lower(), parts.scheme
    proxy = _variable(environ, f"{scheme}_proxy")
    if not proxy or _is_loopback(host):
        return None
    port = parts.port or _PORTS.get(scheme, 0)
    if any(_covers(entry, host, port) for entry in _variable(environ, "no_proxy").split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _covers(entry: str, host: str, port: int) -> bool:
    entry = entry.strip().lower()
    if not entry:
        return False
    if entry == "*":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is not None and "/" in entry:
        try:
            return address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, only = _split_port(entry)
    if only is not None and only != port:
        return False
    if address is not None:
        try:
            return ipaddress.ip_address(name) == address
        except ValueError:
            return False
    if name.startswith("*."):
        name = name[1:]
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith("." + name)


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, port_part = entry[1:].partition("]")
        return name, int(port_part[1:]) if port_part[1:].isdigit() else None
    if entry.count(":") == 1:
        name, _, digits = entry.partition(":")
        if digits.isdigit():
            return name, int(digits)
    return entry, None
