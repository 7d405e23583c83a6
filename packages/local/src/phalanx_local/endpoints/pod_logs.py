"""pods/log: the server requests logs from the kubelet (the node agent) of the pod's node.

The address of the kubelet is in status.addresses and status.daemonEndpoints.kubeletEndpoint.Port of the node; the
request is GET /containerLogs/NAMESPACE/POD/CONTAINER over HTTPS with the server's client certificate, or over HTTP
if the server has no certificates. Only loopback addresses and localhost are contacted.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Final

from phalanx_local.errors import StatusError, bad_request, internal
from phalanx_local.objects import Json, dig, mapping, sequence, text
from phalanx_local.registry.api import Api
from phalanx_local.storage.records import Record

_CONNECT_SECONDS: Final = 10
_REASONS: Final = {400: "BadRequest", 404: "NotFound"}
_FORWARDED: Final = ("follow", "tailLines", "sinceSeconds", "timestamps", "previous", "limitBytes", "sinceTime")


class LogStream:
    """Stream of one container's log, forwarded in chunks. `identity` is the TLS context of the request, None for
    HTTP."""

    def __init__(
        self, address: str, port: int, path: str, query: dict[str, str], identity: ssl.SSLContext | None
    ) -> None:
        host = f"[{address}]" if ":" in address else address
        self._host = f"{host}:{port}"
        self._url = f"{'https' if identity is not None else 'http'}://{self._host}{path}"
        self._query = query
        self._identity = identity

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the log as it arrives. Raise StatusError before the first chunk if the node agent has no log."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(self._url, params=self._query, ssl=self._identity or True) as response,
            ):
                if response.status != 200:
                    text_ = (await response.text()).strip()
                    raise StatusError(response.status, _REASONS.get(response.status, "InternalError"), text_)
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError) as problem:
            raise internal(f"the node's kubelet at {self._host} does not answer: {problem}") from None


def open_log(
    api: Api, record: Record, query: Mapping[str, str], identity: ssl.SSLContext | None = None
) -> LogStream:
    """Return the log stream of a container. Raise 400 before the pod is bound, 500 if the kubelet of its node is
    unknown."""
    pod = record.load()
    container = _container(pod, query.get("container", ""), record.name)
    node_name = text(dig(pod, "spec", "nodeName"))
    if not node_name:
        raise bad_request(
            f'container "{container}" in pod "{record.name}" is waiting to start: pod is not bound to a node'
        )
    node = api.find("", "nodes", "", node_name)
    if node is None:
        raise internal(f'node "{node_name}" of pod "{record.name}" does not exist')
    address, port = _endpoint(node)
    if not address:
        raise internal(f'logs of node "{node_name}" are not available: it has no kubelet endpoint')
    path = f"/containerLogs/{record.namespace}/{record.name}/{container}"
    return LogStream(address, port, path, {key: query[key] for key in _FORWARDED if key in query}, identity)


def _container(pod: Json, wanted: str, name: str) -> str:
    spec = mapping(pod.get("spec"))
    names = [
        text(mapping(item).get("name"))
        for group in ("containers", "initContainers", "ephemeralContainers")
        for item in sequence(spec.get(group))
    ]
    if not wanted:
        if len(sequence(spec.get("containers"))) > 1:
            listed = " ".join(names)
            raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
        return names[0]
    if wanted not in names:
        raise bad_request(f"container {wanted} is not valid for pod {name}")
    return wanted


def _endpoint(node: Json) -> tuple[str, int]:
    """Return a loopback address and port of the node's kubelet; ("", 0) if the node has none."""
    port = dig(node, "status", "daemonEndpoints", "kubeletEndpoint", "Port")
    if not isinstance(port, int) or not 0 < port < 65_536:
        return "", 0
    stated = [text(mapping(item).get("address")) for item in sequence(dig(node, "status", "addresses"))]
    if "localhost" in stated:
        return "127.0.0.1", port
    for item in stated:
        try:
            address = ipaddress.ip_address(item)
        except ValueError:
            continue
        if address.is_loopback:
            return str(address), port
    return "", 0
