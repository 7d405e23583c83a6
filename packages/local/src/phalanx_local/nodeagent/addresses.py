"""Addresses of pods and nodes: one each, out of networks that nobody else on this machine uses."""

from __future__ import annotations

import ipaddress
import zlib

#: Every address in 127.0.0.0/8 reaches this machine on Linux, so processes can really listen on them.
LOOPBACK_NETWORK = "127.128.0.0/9"
#: For nodes. They have to be told apart by it; what listens for them listens on 127.0.0.1.
NODE_NETWORK = "127.64.0.0/10"
#: For pods that only pretend to run; nothing answers there.
PRETEND_NETWORK = "10.128.0.0/9"


class AddressPool:
    """Gives each pod (or node) an address that no other one of this agent has.

    The search starts at a place that the uid (or the node's name) decides, so two agents on one machine rarely
    meet and a test sees the same addresses again.
    """

    def __init__(self, network: str) -> None:
        """Raises ValueError when `network` is no IPv4 network in CIDR form with room for a pod."""
        parsed = ipaddress.IPv4Network(network)
        # The first and last address of a network are not for hosts, even where nothing enforces it.
        self._first = int(parsed.network_address) + 1
        self._size = parsed.num_addresses - 2
        if self._size < 1:
            raise ValueError(f"{network} has no room for a pod")
        self._taken: dict[str, str] = {}  # address -> uid

    def allocate(self, uid: str) -> str:
        """A free address for the pod. Raises LookupError when none is left."""
        if len(self._taken) >= self._size:
            raise LookupError(f"all {self._size} pod addresses are taken")
        offset = zlib.crc32(uid.encode()) % self._size
        while (address := str(ipaddress.IPv4Address(self._first + offset))) in self._taken:
            offset = (offset + 1) % self._size
        self._taken[address] = uid
        return address

    def claim(self, uid: str, address: str) -> None:
        """The pod has this address already (an earlier agent gave it)."""
        self._taken.setdefault(address, uid)

    def release(self, uid: str, address: str) -> None:
        if self._taken.get(address) == uid:
            del self._taken[address]
