"""Rules for connections that all transports share: timeouts, kernel probes, compression."""

from __future__ import annotations

import asyncio
import socket

__all__ = ["ACCEPT_PACKED", "CONNECT_TIMEOUT", "IDLE_LIMIT", "keep_alive"]

CONNECT_TIMEOUT = 10.0
#: kube-apiserver closes idle connections after 90 s, many load balancers after 60 s: close before both.
IDLE_LIMIT = 50.0
#: API servers compress long responses such as lists to a twentieth, which also saves time on both sides.
ACCEPT_PACKED = ("Accept-Encoding", "gzip")


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Enable kernel probes (TCP keep-alive) on a silent connection, so that a vanished server is detected."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # the options do not exist on every system
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
