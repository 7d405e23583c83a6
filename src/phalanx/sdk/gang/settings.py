"""Settings of a member of a gang: variables of its pod, without any secret."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

#: Port of the hub, on the address of its pod.
PORT = 7077
VOLUME = "gang-keys"
KEYS_PATH = "/var/run/phalanx-gang"
PREFIX = "PHALANX_GANG_"
_VOLUME_VARIABLE = "PHALANX_VOLUME_GANG_KEYS"
_HOSTS_VARIABLE = "PHALANX_HOSTS"


class MemberSettings(NamedTuple):
    """Settings of a member. `hub` is the host name of rank 0, `keys` the directory of the certificates."""

    rank: int
    hub: str
    address: str
    port: int
    client_timeout: float
    keys: str

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> MemberSettings:
        """Read the settings. Raises ValueError that names the missing or invalid variable."""

        def value(name: str) -> str:
            text = environ.get(PREFIX + name, "")
            if not text:
                raise ValueError(
                    f"the variable {PREFIX}{name} is missing: this program runs in pods of a gang only"
                )
            return text

        first = value("TASK") == "hub"
        pod = value("POD")
        index = pod.rpartition("-")[2]
        if not index.isdecimal():
            raise ValueError(f"{PREFIX}POD={pod!r} does not end with an index")
        return cls(
            rank=0 if first else int(index) + 1,
            hub=value("HUB"),
            address=value("ADDRESS"),
            port=int(value("PORT")),
            client_timeout=float(value("CLIENT_TIMEOUT")),
            # Nodes that run local processes cannot mount; they name the directory.
            keys=environ.get(_VOLUME_VARIABLE) or KEYS_PATH,
        )


def resolve(host: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the address of a pod by its host name: of the hosts file of local processes, else of DNS. Raises
    OSError."""
    file = (os.environ if environ is None else environ).get(_HOSTS_VARIABLE)
    if file and Path(file).exists():
        for line in Path(file).read_text("utf-8").splitlines():
            address, *names = line.split()
            if host in names:
                return address
        raise OSError(f"no running pod {host}")
    return socket.gethostbyname(host)
