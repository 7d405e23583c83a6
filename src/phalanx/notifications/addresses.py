"""Addresses that notifications can be sent to: no private, link-local or otherwise internal one, unless allowed."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Sequence

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from phalanx.notifications.settings import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Prefixes of IPv6 that carry an IPv4 address: NAT64, and 6to4.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")


class RefusedAddressError(Exception):
    """Error for a name with an address that notifications must not be sent to."""


def is_refused(address: Address, allowed: Iterable[Network] = ()) -> bool:
    """Return whether an address is internal: private, loopback, link-local, multicast, or such an IPv4 address
    within an IPv6 one."""
    carried = _carried(address)
    if any(part in network for part in (address, carried) if part is not None for network in allowed):
        return False
    return any(not part.is_global or part.is_multicast for part in (address, carried) if part is not None)


async def checked_addresses(host: str, port: int, allowed: Sequence[Network]) -> list[tuple[int, str]]:
    """Resolve `host` to (family, address) pairs. Raises RefusedAddressError if one of them is internal.

    The caller connects to these addresses and does not resolve the name again: it can have another answer then.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OSError("the name of the target's host cannot be resolved") from error
    addresses: list[tuple[int, str]] = list(
        dict.fromkeys((int(family), str(place[0])) for family, _, _, _, place in found)
    )
    for _, text in addresses:
        # A scope (fe80::1%eth0) belongs to a link-local address only.
        if is_refused(ipaddress.ip_address(text.partition("%")[0]), allowed):
            raise RefusedAddressError(
                "the target's host has a private or internal address; fix: allowAddresses in the settings"
            )
    if not addresses:
        raise OSError("the name of the target's host has no address")
    return addresses


class CheckedResolver(AbstractResolver):
    """Resolver of aiohttp that returns checked addresses only."""

    def __init__(self, allowed: Sequence[Network]) -> None:
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host, host=address, port=port, family=found, proto=0, flags=socket.AI_NUMERICHOST
            )
            for found, address in await checked_addresses(host, port, self._allowed)
        ]

    async def close(self) -> None:
        pass


def checked_connector(allowed: Sequence[Network]) -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(resolver=CheckedResolver(allowed), use_dns_cache=False, force_close=True)


def _carried(address: Address) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:
        return ipaddress.IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    return None
