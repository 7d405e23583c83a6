"""Initial objects of every cluster: namespaces, priority classes, and roles."""

from __future__ import annotations

from typing import Final

from phalanx_local.authorization import bootstrap_roles
from phalanx_local.registry.api import Api
from phalanx_local.strategies.priority import SYSTEM_CLASSES

NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_DESCRIPTIONS: Final = {
    "system-cluster-critical": "Used for system critical pods that must run in the cluster.",
    "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
}


def fill(api: Api) -> None:
    """Create missing initial objects of the cluster; objects restored from a data file are not changed."""
    namespaces = api.type("", "namespaces").preferred
    for name in NAMESPACES:
        if not api.exists("", "namespaces", "", name):
            api.create(namespaces, "", {"metadata": {"name": name}}, api.write())
    classes = api.type("scheduling.k8s.io", "priorityclasses").preferred
    for name, value in SYSTEM_CLASSES.items():
        if not api.exists("scheduling.k8s.io", "priorityclasses", "", name):
            body = {"metadata": {"name": name}, "value": value, "description": _DESCRIPTIONS[name]}
            api.create(classes, "", body, api.write())
    bootstrap_roles.fill(api)
