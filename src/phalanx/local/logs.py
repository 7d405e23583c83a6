"""pods/log: the server has no logs of its own and asks the kubelet (the node agent) of the pod's node.

The kubelet is found at status.addresses and status.daemonEndpoints.kubeletEndpoint.Port of the node, and
asked for GET /containerLogs/NAMESPACE/POD/CONTAINER over HTTP; only loopback addresses are asked.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from phalanx.local.api import Api
from phalanx.local.errors import ApiError, bad_request, internal
from phalanx.local.objects import Json, dig, mapping, sequence, text
from phalanx.local.records import Record

_FORWARDED = ("follow", "tailLines", "sinceSeconds", "timestamps", "previous", "limitBytes", "sinceTime")


class LogSource:
    """Reads container logs from node agents."""

    async def read(self, api: Api, record: Record, query: Mapping[str, str]) -> bytes:
        """The log of one container. Raises 400 while there is none, 500 when the agent cannot be asked."""
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
        return await _fetch(address, port, path, {k: query[k] for k in _FORWARDED if k in query and k != "follow"})


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
    """A loopback address and port of the node's kubelet, or an empty address."""
    port = dig(node, "status", "daemonEndpoints", "kubeletEndpoint", "Port")
    if not isinstance(port, int) or not 0 < port < 65_536:
        return "", 0
    for item in sequence(dig(node, "status", "addresses")):
        try:
            address = ipaddress.ip_address(text(mapping(item).get("address")))
        except ValueError:
            continue
        if address.is_loopback:
            return str(address), port
    return "", 0


async def _fetch(address: str, port: int, path: str, query: Mapping[str, str]) -> bytes:
    import aiohttp

    host = f"[{address}]" if ":" in address else address
    timeout = aiohttp.ClientTimeout(total=10)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://{host}:{port}{path}", params=dict(query)) as response,
        ):
            body = await response.read()
            if response.status != 200:
                raise ApiError(response.status, "BadRequest", body.decode(errors="replace").strip())
            return body
    except (aiohttp.ClientError, TimeoutError) as problem:
        raise internal(f"the node's kubelet at {host}:{port} does not answer: {problem}") from None
