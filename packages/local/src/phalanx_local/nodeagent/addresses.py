"""Addresses of pods and nodes, from networks that no other process of this machine uses."""

from __future__ import annotations

import ipaddress
import zlib

#: All addresses in 127.0.0.0/8 reach this machine on Linux, so that processes can listen on them.
LOOPBACK_NETWORK = "127.128.0.0/9"
#: Network of the nodes. The address only identifies a node; servers of a node listen on 127.0.0.1.
NODE_NETWORK = "127.64.0.0/10"
#: Network of simulated pods; no process answers there.
PRETEND_NETWORK = "10.128.0.0/9"


class AddressPool:
    """Pool of unique addresses for the pods (or nodes) of this agent.

    The uid (or the name of the node) decides where the search starts. Two agents on one machine rarely collide,
    and a test gets the same addresses in each run.
    """

    def __init__(self, network: str) -> None:
        """Raise ValueError if `network` is no IPv4 network in CIDR form with at least one host address."""
        parsed = ipaddress.IPv4Network(network)
        # The first and last address of a network are reserved by convention.
        self._first = int(parsed.network_address) + 1
        self._size = parsed.num_addresses - 2
        if self._size < 1:
            raise ValueError(f"{network} has no address for a pod")
        self._uids: dict[str, str] = {}  # address -> uid

    def allocate(self, uid: str) -> str:
        """Allocate an unused address for the pod. Raise LookupError if all addresses are in use."""
        if len(self._uids) >= self._size:
            raise LookupError(f"all {self._size} pod addresses are in use")
        offset = zlib.crc32(uid.encode()) % self._size
        while (address := str(ipaddress.IPv4Address(self._first + offset))) in self._uids:
            offset = (offset + 1) % self._size
        self._uids[address] = uid
        return address

    def claim(self, uid: str, address: str) -> None:
        """Record the address that the pod already has from an earlier agent."""
        self._uids.setdefault(address, uid)

    def release(self, uid: str, address: str) -> None:
        if self._uids.get(address) == uid:
            del self._uids[address]
