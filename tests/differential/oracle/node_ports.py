"""NodePorts. Sources: pkg/scheduler/framework/plugins/nodeports/node_ports.go, pkg/scheduler/util/utils.go
(GetHostPorts), staging/src/k8s.io/kube-scheduler/framework/types.go (HostPortInfo).

On the host's network the API server has copied every containerPort to hostPort; a manifest that saw none means it.
"""

from __future__ import annotations

from tests.differential.oracle.world import Wire, World, containers_of, sidecars_of

_EVERY_ADDRESS = "0.0.0.0"


def objection(world: World, pod: Wire, node: Wire) -> str:
    taken = [port for tenant in world.tenants(node["metadata"]["name"]) for port in host_ports(tenant)]
    for address, protocol, number in host_ports(pod):
        for other_address, other_protocol, other_number in taken:
            if (protocol, number) != (other_protocol, other_number):
                continue
            if address == other_address or _EVERY_ADDRESS in (address, other_address):
                return "node(s) didn't have free ports for the requested pod ports"
    return ""


def host_ports(pod: Wire) -> list[tuple[str, str, int]]:
    """(address, protocol, port) of main containers and sidecars."""
    found = []
    for container in [*containers_of(pod), *sidecars_of(pod)]:
        for port in container.get("ports") or []:
            number = port.get("hostPort") or 0
            if not number and pod["spec"].get("hostNetwork"):
                number = port.get("containerPort") or 0
            if number > 0:
                found.append((port.get("hostIP") or _EVERY_ADDRESS, port.get("protocol") or "TCP", number))
    return found
