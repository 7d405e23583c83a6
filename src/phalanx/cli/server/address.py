"""Address of the server: from the command line, or published in the cluster."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from phalanx.kube.auth.config import SERVER_EXTENSION
from phalanx.kube.errors import ApiError
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from phalanx.cli.connection import ClientOptions
    from phalanx.kube.client import KubeClient

#: ConfigMap with the server's URL and CA certificates. Every authenticated user can read it.
NAMESPACE, NAME = "kube-public", "phalanx"
URL_KEY, AUTHORITY_KEY = "url", "ca.crt"
_PUBLISHED = f"ConfigMap {NAMESPACE}/{NAME}"


@dataclass(frozen=True)
class ServerAddress:
    """URL of the server and the authorities that can sign its certificate (None: those of this system).

    `origin` is an option or the ConfigMap, for messages.
    """

    url: str
    origin: str
    authority: bytes | None = None
    authority_file: str | None = None


def own_address(client: KubeClient) -> ServerAddress | None:
    """Return the address that the user's own kubeconfig has for the cluster; None for none. Raises
    click.UsageError for an address to which a token must not be sent."""
    origin = f"{SERVER_EXTENSION} in {client.config.source}"
    return ServerAddress(checked_url(url, origin), origin) if (url := client.config.page_url) else None


async def server_address(client: KubeClient, options: ClientOptions) -> ServerAddress | None:
    """Return the address of the command line, else the published one; None for none. Raises click.ClickException
    if a token must not be sent to it."""
    if options.server:
        url = checked_url(options.server, "--server")
        return ServerAddress(url, "--server", authority_file=options.server_authority or None)
    try:
        published = await client.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}")
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise
    data = published.get("data") or {}
    url = checked_url(str(data.get(URL_KEY) or ""), _PUBLISHED)
    # An address of this machine is true only for a cluster on this machine. Elsewhere any local user could listen.
    if url.startswith("http:") and not is_loopback(urlsplit(client.config.server).hostname or ""):
        raise click.ClickException(
            f"{_PUBLISHED} names {url}, an address of this machine, but the cluster is not on this machine; your "
            "token was not sent. Fix: use --server URL"
        )
    authority = str(data.get(AUTHORITY_KEY) or "")
    return ServerAddress(url, _PUBLISHED, authority=authority.encode() or None)


def checked_url(url: str, origin: str) -> str:
    """Return the URL without a trailing slash. Raises click.UsageError if it is none, or if a token would be sent
    without TLS."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    valid = parts.scheme in ("http", "https") and host and url.isascii() and url.isprintable() and " " not in url
    if not valid or not host or "@" in parts.netloc or parts.query or parts.fragment:
        raise click.UsageError(f"invalid {origin} {quoted(url)}; write a URL such as https://phalanx.example:8443")
    if parts.scheme == "http" and not is_loopback(host):
        raise click.UsageError(f"{origin} {quoted(url)} would send your token unencrypted; use https")
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is one of this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
