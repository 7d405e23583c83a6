"""Application of steps to a cluster."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.model.account import AccountKey, EvictionRate, SelfProtection, Tree
from phalanx.model.events import MaintenanceWindowRemoved, MaintenanceWindowUpdated
from phalanx.model.gang import GangKey, MatchPolicy
from phalanx.model.maintenance import MaintenanceWindow
from phalanx.model.pod import MemberState, PodPhase
from phalanx.model.resources import requests_of
from phalanx.model.selectors import Taint
from phalanx.model.topology import TopologyRule

from ..scheduling.scenario import amounts
from .cluster import SoakCluster
from .feature_plays import FEATURE_PLAYS, Play
from .pods import POD_FIELDS, make_pod
from .steps import HOSTNAME, RACK, Step


def play(step: Step, cluster: SoakCluster) -> None:
    """Apply a step to a cluster."""
    PLAYS[step.what](cluster, step.name, dict(step.how))


def _job(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    near = {"hard": TopologyRule.by_label(RACK), "soft": TopologyRule(preferred=RACK)}.get(how.pop("near", ""))
    members, minimum, mate = how.pop("members"), how.pop("minimum"), how.pop("mate", "")
    more: dict[str, Any] = {"match_policy": MatchPolicy(how.pop("match", "waiting-and-running"))}
    if how.pop("queued", False):
        # A group can announce less than its members use: then the pods that it still creates count alone.
        announced = how.pop("announced", minimum)
        asked = amounts(**{key: how[key] * announced for key in ("cpu", "gpu") if key in how})
        more |= {"admission": True, "admitted": False, "min_resources": asked}
    roles = ("ps", "worker") if how.pop("roles", False) and minimum > 1 else ("",)
    if len(roles) > 1:
        more["roles"] = tuple((role, 1) for role in roles)
    if mate and cluster.knows_gang(mate):
        both = sorted(GangKey(cluster.namespace, each) for each in (name, mate))
        more["gang_group"] = tuple(both)
        found = cluster.state.gangs[GangKey(cluster.namespace, mate)].spec
        assert found is not None
        if found.gang_group or found.composite is not None:
            # A group is in one gang group; the groups of a composite are native and are in none.
            more.pop("gang_group")
        else:
            cluster.gang(mate, found.min_member, gang_group=tuple(both))
    cluster.gang(name, minimum, created=cluster.now, queue=how["queue"], topology=near, **more)
    for number in range(members):
        make_pod(cluster, f"{name}-{number}", how | {"role": roles[number % len(roles)]}, gang=name)


def _grow(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if name and cluster.knows_gang(name):
        make_pod(cluster, how.pop("pod"), how, gang=name)


def _minimum(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if name and cluster.knows_gang(name):
        cluster.gang(name, how["minimum"])


def _node(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    labels = {RACK: how.pop("rack"), HOSTNAME: name}
    taints = [Taint(key)] if (key := how.pop("taint", "")) else []
    cluster.node(name, labels=labels, taints=taints, **how)


def _no_node(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if cluster.state.nodes.row(name) >= 0:
        cluster.no_node(name)


def _queue(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    above, more = how.pop("under", ""), {}
    cluster.amounts_only &= "fifo" not in how
    if "lasting" in how:
        more["min_run_time"] = how.pop("lasting")
    if "rate" in how:
        more["eviction_rate"] = EvictionRate(how.pop("rate"), 60)
    if "protects" in how:
        more["self_protection"] = SelfProtection(how.pop("protects"))
    cluster.queue(
        name, parent=above if name != above and f"account queue {above}" in cluster.known else "", **how, **more
    )


def _tree(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    root = AccountKey(Tree.KOORDINATOR, "koordinator-root-quota")
    cluster.account(root, label="quota koordinator-root-quota", parental=True)
    limits = {"deserved": how["min"], "capability": how["max"], "lends": how["lends"]}
    cluster.account(AccountKey(Tree.KOORDINATOR, name), label=f"quota {name}", parent=root, **limits)


def _foreign(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    where = {"nominated": how["node"]} if how["nominated"] else {"node": how["node"]}
    cluster.pod(name, scheduler="somebody-else", cpu=how["cpu"], **where)


def _expects(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if name and cluster.knows_gang(name):
        fields = {key: value for key, value in how.items() if key in POD_FIELDS}
        cluster.expects(name, how["count"], **fields)


def _quota(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    cluster.elastic_quota(name, how["min"], how["max"])


def _no_gang(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if name and cluster.knows_gang(name):
        cluster.no_gang(name)


def _finish(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if cluster.has(name, MemberState.RUNNING):
        cluster.finishes(name, phase=PodPhase.FAILED if how.get("failed") else PodPhase.SUCCEEDED)


def _gone(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if name in cluster.state.pods:
        cluster.gone(name)


def _confirm(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if not name:
        cluster.confirm()
    elif cluster.has(name, MemberState.ASSUMED):
        cluster.confirm(name)


def _depart(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if not name:
        cluster.depart()
    elif cluster.leaves(name):
        cluster.depart(name)


def _fail(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if cluster.has(name, MemberState.ASSUMED):
        cluster.binding_fails(name)


def _refuse(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if name in cluster.state.pods and cluster.state.pods[name].evicting:
        cluster.state.pods.eviction_refused(name, cluster.now + how["seconds"])
        cluster.changed = True


def _resize(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if name in cluster.state.pods:
        pod = cluster.state.pods[name].pod
        asked = requests_of(dict(pod.usage) | dict(amounts(**how)))
        # A pod without a node gets the fields of its spec.
        changed = {} if pod.node else {"pod_class": msgspec.structs.replace(pod.pod_class, requests=asked)}
        cluster.becomes(name, usage=asked, **changed)


def _wait(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    cluster.skew = how.get("skew", 0)
    cluster.wait(how["seconds"])


def _window(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    start = cluster.now + how["start"]
    made = MaintenanceWindow(
        name, f"uid-{name}-{start}", tuple(how["nodes"]), start=start, end=start + how["length"]
    )
    cluster.observe(f"window {name}", MaintenanceWindowUpdated(made))


def _no_window(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if name in cluster.state.nodes.maintenance.windows:
        cluster.observe(f"window {name}", MaintenanceWindowRemoved(name))


def _restart(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    cluster.restart()


PLAYS: dict[str, Play] = {
    "node": _node,
    "no_node": _no_node,
    "queue": _queue,
    "quota": _quota,
    "tree": _tree,
    "foreign": _foreign,
    "expects": _expects,
    "job": _job,
    "single": lambda cluster, name, how: make_pod(cluster, name, how),
    "grow": _grow,
    "minimum": _minimum,
    "finish": _finish,
    "gone": _gone,
    "no_gang": _no_gang,
    "confirm": _confirm,
    "depart": _depart,
    "fail": _fail,
    "refuse": _refuse,
    "resize": _resize,
    "wait": _wait,
    "window": _window,
    "no_window": _no_window,
    "restart": _restart,
    **FEATURE_PLAYS,
}
