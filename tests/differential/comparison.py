"""Differences between two evaluations of one world, and the smallest world that still shows them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import fields

from tests.differential.oracle.verdict import objections
from tests.differential.oracle.world import Wire, World
from tests.differential.ours import Ours, Verdicts
from tests.differential.worlds import OURS

# pod uid -> node name -> the plugins that say no.
Plugins = dict[str, dict[str, frozenset[str]]]

# How our reasons begin, and which of kube-scheduler's plugins says so.
_SPEAKERS = (
    ("node(s) were unschedulable", "NodeUnschedulable"),
    ("node(s) had untolerated taint", "TaintToleration"),
    ("node(s) didn't match Pod's node affinity/selector", "NodeAffinity"),
    ("node(s) didn't have free ports", "NodePorts"),
    ("Insufficient ", "NodeResourcesFit"),
    ("Too many pods", "NodeResourcesFit"),
    ("node(s) didn't match pod topology spread constraints", "PodTopologySpread"),
    ("node(s) didn't match pod affinity rules", "InterPodAffinity"),
    ("node(s) didn't match pod anti-affinity rules", "InterPodAffinity"),
    ("node(s) didn't satisfy existing pods anti-affinity rules", "InterPodAffinity"),
    ("node(s) didn't match Pod's required features", "NodeDeclaredFeatures"),
    ("node(s) had no available disk", "VolumeRestrictions"),
    ("node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod", "VolumeRestrictions"),
    ("node(s) exceed max volume count", "NodeVolumeLimits"),
    ("node(s) had no available volume zone", "VolumeZone"),
    ("node(s) didn't match PersistentVolume's node affinity", "VolumeBinding"),
    ("node(s) had volume node affinity conflict", "VolumeBinding"),
    ("node(s) didn't find available persistent volumes to bind", "VolumeBinding"),
    ("node(s) did not have enough free storage", "VolumeBinding"),
    ("cannot allocate all claims", "DynamicResources"),
)
_VOLUMES = frozenset({"VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"})


def plugins_behind(reason: str) -> frozenset[str]:
    """Return the plugins that may give a reason; several of them report a broken claim."""
    for beginning, plugin in _SPEAKERS:
        if reason.startswith(beginning):
            return frozenset({plugin})
    text = reason.lower()
    if any(word in text for word in ("resourceclaim", "resource claim", "device")):
        return frozenset({"DynamicResources"})
    if any(word in text for word in ("persistentvolume", "pvc", "csi driver")):
        return _VOLUMES
    return frozenset({reason})


def oracle_says(world: World) -> Plugins:
    """About every pod that waits for us."""
    found: Plugins = {}
    for pod in world.waiting():
        if pod["spec"].get("schedulerName") == OURS:
            found[pod["metadata"]["uid"]] = {
                node["metadata"]["name"]: frozenset(says)
                for node in world.nodes
                if (says := objections(world, pod, node))
            }
    return found


def we_say(world: World) -> Verdicts:
    return Ours.of(world).verdicts()


def difference(world: World) -> str:
    """Return the difference between the oracle and us, "" for none."""
    return first_difference(oracle_says(world), we_say(world))


def first_difference(theirs: Plugins, ours: Verdicts) -> str:
    """Return the first difference: both must reject the same pods on the same nodes, and each of our reasons
    must be one of the oracle's plugins.

    (Not the reverse: about a pod that fits no node at all we report that, and nothing about nodes.)
    """
    if theirs.keys() != ours.keys():
        return f"pods that wait: {sorted(theirs)} by the oracle, {sorted(ours)} by us"
    for uid, expected in theirs.items():
        for node in sorted({*expected, *ours[uid]}):
            says, said = expected.get(node), ours[uid].get(node)
            if says is None or said is None or not all(plugins_behind(reason) & says for reason in said):
                return f"{uid} on {node}: {sorted(says or ()) or 'fits'} by the oracle, {said or 'fits'} by us"
    return ""


def report(world: World, differs: Callable[[World], str]) -> str:
    small = shrunk(world, differs)
    return f"{differs(small)}\n{described(small)}"


def shrunk(world: World, differs: Callable[[World], str]) -> World:
    """The world with everything left out that the difference does not need."""
    done = False
    while not done:
        done = True
        for smaller in _smaller(world):
            try:
                still = differs(smaller)
            except Exception:
                continue
            if still:
                world, done = smaller, False
                break
    return world


def described(world: World) -> str:
    lines = []
    for field in fields(World):
        lines += [f"{field.name}: {json.dumps(entry, sort_keys=True)}" for entry in getattr(world, field.name)]
    return "\n".join(lines)


def _smaller(world: World) -> Iterator[World]:
    """The world with one thing less, the greatest first."""
    for field in fields(World):
        for at in range(len(getattr(world, field.name))):
            less = copy.deepcopy(world)
            del getattr(less, field.name)[at]
            yield less
    for field in fields(World):
        for at, entry in enumerate(getattr(world, field.name)):
            for path in _paths(entry):
                less = copy.deepcopy(world)
                _remove(getattr(less, field.name)[at], path)
                yield less


def _paths(entry: object, prefix: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items: list[tuple[str | int, object]] = []
    if isinstance(entry, dict):
        items = list(entry.items())
    elif isinstance(entry, list):
        items = list(enumerate(entry))
    for key, value in items:
        path = (*prefix, key)
        if path not in _NEEDED and key not in ("topologyKey", "maxSkew", "whenUnsatisfiable", "key", "operator"):
            yield path
        yield from _paths(value, path)


_NEEDED = {
    ("metadata",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "uid"),
    ("spec",),
    ("spec", "containers"),
    ("spec", "schedulerName"),
    ("status",),
    ("status", "allocatable"),
    ("status", "allocatable", "pods"),
}


def _remove(entry: Wire, path: tuple[str | int, ...]) -> None:
    at: object = entry
    for key in path[:-1]:
        at = at[key]  # type: ignore[index]
    del at[path[-1]]  # type: ignore[attr-defined]
