"""Names and addresses of running pods: a file like /etc/hosts per namespace, for processes without a cluster
DNS."""

from __future__ import annotations

import os
from pathlib import Path

from phalanx_local.nodeagent.core_v1 import V1Pod
from phalanx_local.nodeagent.pod_runtime.environment import hostname

#: Variable with the path of the hosts file.
HOSTS_VARIABLE = "PHALANX_HOSTS"


class Hosts:
    """Hosts files, one per namespace under `directory`: a line `ADDRESS NAME [ALIAS ...]` per running pod.

    The names of a pod are its name, its host name and, as in cluster DNS, `HOSTNAME.SUBDOMAIN` with and without
    `.NAMESPACE.svc`. A file is replaced atomically, so that readers never see a partial file.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "hosts"
        self._lines: dict[str, dict[str, str]] = {}

    def path(self, namespace: str) -> Path:
        return self._directory / namespace

    def add(self, pod: V1Pod, address: str) -> None:
        lines = self._lines.setdefault(pod.metadata.namespace, {})
        line = " ".join((address, *_names(pod)))
        if lines.get(pod.metadata.uid) != line:
            lines[pod.metadata.uid] = line
            self._write(pod.metadata.namespace)

    def remove(self, pod: V1Pod) -> None:
        if self._lines.get(pod.metadata.namespace, {}).pop(pod.metadata.uid, None) is not None:
            self._write(pod.metadata.namespace)

    def _write(self, namespace: str) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        fresh = self._directory / f".{namespace}.new"
        fresh.write_text("".join(f"{line}\n" for line in self._lines[namespace].values()), encoding="utf-8")
        os.replace(fresh, self.path(namespace))


def _names(pod: V1Pod) -> list[str]:
    host = hostname(pod)
    names = [pod.metadata.name, host]
    if pod.spec.subdomain:
        short = f"{host}.{pod.spec.subdomain}"
        names += [short, f"{short}.{pod.metadata.namespace}.svc"]
    return list(dict.fromkeys(names))
