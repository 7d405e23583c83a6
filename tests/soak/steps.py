"""Steps of a cluster that can be drawn, recorded and replayed."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from phalanx.model.account import AccountKey, EvictionRate, SelfProtection, Tree
from phalanx.model.events import MaintenanceWindowRemoved, MaintenanceWindowUpdated
from phalanx.model.gang import GangKey, MatchPolicy
from phalanx.model.maintenance import MaintenanceWindow
from phalanx.model.peers import NO_PEERS, Peers, PeerTerm, PodSelection, Spread
from phalanx.model.pod import MemberState, PodClass, PodPhase
from phalanx.model.resources import requests_of
from phalanx.model.run_time import RunTime
from phalanx.model.selectors import HostPort, Requirement, Taint
from phalanx.model.topology import TopologyRule

from ..scheduling.scenario import NAMESPACE, amounts
from .cluster import POLICIES, QUEUES, SoakCluster

NODES, PODS = 8, 60
RACK, HOSTNAME = "topology.kubernetes.io/rack", "kubernetes.io/hostname"
# Labels that affinity terms select: those of pods with such terms.
_WEB = PodSelection((Requirement("app", "In", ("web",)),), (NAMESPACE,))
#: How often each happens, in parts of their sum.
WEIGHTS = {
    "node": 4,
    "no_node": 1,
    "queue": 2,
    "quota": 1,
    "tree": 1,
    "foreign": 1,
    "expects": 1,
    "job": 14,
    "single": 8,
    "grow": 3,
    "minimum": 1,
    "finish": 18,
    "gone": 6,
    "no_gang": 2,
    "confirm": 22,
    "depart": 14,
    "fail": 2,
    "refuse": 2,
    "resize": 2,
    "wait": 16,
    "window": 1,
    "no_window": 1,
    "restart": 1,
}


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step: its target and its details. A step whose target no longer exists is skipped."""

    what: str
    name: str = ""
    how: dict[str, Any] = {}


class Draw:
    """Draws steps from a seed, for a cluster as it is at the moment."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        # Half of the lives have only resource constraints: then every promised start can be met.
        self._minding = seed // len(POLICIES) % 2 == 1
        self._made = 0

    def step(self, cluster: SoakCluster) -> Step:
        what = self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if len(cluster.state.pods) > PODS and what in ("job", "single", "grow"):
            what = "gone"
        drawn: Step = getattr(self, f"_{what}")(cluster)
        return drawn

    def _pick(self, cluster: SoakCluster, *states: MemberState) -> str:
        found = sorted(uid for uid, record in cluster.state.pods.items() if record.state in states)
        return self._random.choice(found) if found else ""

    def _gang(self, cluster: SoakCluster) -> str:
        found = sorted(gang.key.name for gang in cluster.state.gangs.values() if gang.spec is not None)
        return self._random.choice(found) if found else ""

    def _name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made:05}"

    def _or_nothing(self, parts: int, *others: dict[str, Any]) -> dict[str, Any]:
        """Return one of the choices, or nothing in that share of the draws."""
        choices: list[dict[str, Any]] = [{}] * parts + list(others)
        return self._random.choice(choices)

    def _asked(self) -> dict[str, Any]:
        draw = self._random
        limit = draw.choice([0, 0, 60, 300, 1000])
        minding: list[dict[str, Any]] = (
            [{"port": 80}, {"away": HOSTNAME}, {"away": RACK}, {"even": RACK}] if self._minding else []
        )
        return {
            "queue": draw.choice(QUEUES),
            "priority": draw.choice([0, 0, 0, 10, 100]),
            "limit": limit,
            **self._or_nothing(8, *minding),
            **self._or_nothing(5, {"own": "preemptable"}, {"own": "cooldown"}),
            **self._or_nothing(3, {"quota": "k1"}, {"quota": "k2"}, {"quota": "k2", "own": "firm"}),
            **draw.choice([{"cpu": 1}, {"cpu": 1}, {"cpu": 2}, {"cpu": 1, "gpu": 1}, {"gpu": 2}, {"cpu": 4}]),
        }

    def _node(self, cluster: SoakCluster) -> Step:
        draw, number = self._random, self._random.randrange(NODES)
        how = {"cpu": draw.choice([4, 8]), "gpu": draw.choice([0, 2, 4]), "rack": "xyz"[number % 3]}
        how |= draw.choice([{}, {}, {}, {}, {"unschedulable": True}, {"taint": "odd"}])
        return Step("node", f"n{number}", how)

    def _no_node(self, cluster: SoakCluster) -> Step:
        return Step("no_node", f"n{self._random.randrange(NODES)}")

    def _queue(self, cluster: SoakCluster) -> Step:
        draw = self._random
        how: dict[str, Any] = {"weight": draw.choice([1, 1, 2, 4]), "reclaimable": draw.random() < 0.8}
        for word, chance in (("capability", 0.4), ("deserved", 0.4), ("guarantee", 0.2)):
            if draw.random() < chance:
                least = {"guarantee": 1, "deserved": 4, "capability": 8}[word]
                how[word] = {"cpu": draw.randint(least, least * 3), "gpu": draw.randint(least // 2, least)}
        words: list[dict[str, Any]] = [{"under": "top"}, {"lasting": 60}, {"rate": 2}, {"protects": "none"}]
        how |= self._or_nothing(4, *words, {"fifo": True})
        return Step("queue", draw.choice([*QUEUES, "top"]), how)

    def _tree(self, cluster: SoakCluster) -> Step:
        """Koordinator's, of two quotas."""
        draw, least = self._random, self._random.randint(0, 6)
        how = {"min": {"cpu": least}, "max": {"cpu": least + draw.choice([2, 8, 40])}, "lends": draw.random() < 0.8}
        return Step("tree", draw.choice(["k1", "k2"]), how)

    def _foreign(self, cluster: SoakCluster) -> Step:
        """Return a foreign pod, on a node or nominated for it."""
        draw = self._random
        how = {"node": f"n{draw.randrange(NODES)}", "cpu": draw.choice([1, 3]), "nominated": draw.random() < 0.3}
        return Step("foreign", self._name("foreign"), how)

    def _expects(self, cluster: SoakCluster) -> Step:
        return Step("expects", self._gang(cluster), {"count": self._random.randint(1, 3), **self._asked()})

    def _quota(self, cluster: SoakCluster) -> Step:
        draw, least = self._random, self._random.randint(2, 10)
        return Step("quota", "ns", {"min": {"cpu": least}, "max": {"cpu": least + draw.choice([0, 8, 40])}})

    def _job(self, cluster: SoakCluster) -> Step:
        draw, members = self._random, self._random.choice([1, 2, 2, 3, 4, 6])
        how: dict[str, Any] = {
            "members": members,
            "minimum": draw.choice([members, members, max(1, members - 1), 1]),
        }
        near = draw.choice(["", "", "", "hard", "soft"])
        how |= self._or_nothing(4, {"queued": True}, {"roles": True}, {"mate": self._gang(cluster)})
        how |= self._or_nothing(3, *({"match": each.value} for each in MatchPolicy))
        return Step("job", self._name("job"), how | self._asked() | ({"near": near} if near else {}))

    def _single(self, cluster: SoakCluster) -> Step:
        return Step("single", self._name("pod"), self._asked())

    def _grow(self, cluster: SoakCluster) -> Step:
        return Step("grow", self._gang(cluster), {"pod": self._name("more"), **self._asked()})

    def _minimum(self, cluster: SoakCluster) -> Step:
        return Step("minimum", self._gang(cluster), {"minimum": self._random.randint(1, 5)})

    def _finish(self, cluster: SoakCluster) -> Step:
        failed = self._random.random() < 0.2
        return Step("finish", self._pick(cluster, MemberState.RUNNING), {"failed": True} if failed else {})

    def _gone(self, cluster: SoakCluster) -> Step:
        return Step("gone", self._pick(cluster, *MemberState))

    def _no_gang(self, cluster: SoakCluster) -> Step:
        return Step("no_gang", self._gang(cluster))

    def _confirm(self, cluster: SoakCluster) -> Step:
        return Step("confirm", self._pick(cluster, MemberState.ASSUMED) if self._random.random() < 0.3 else "")

    def _depart(self, cluster: SoakCluster) -> Step:
        leaving = sorted(uid for uid, record in cluster.state.pods.items() if record.evicting)
        return Step("depart", self._random.choice(leaving) if leaving and self._random.random() < 0.3 else "")

    def _fail(self, cluster: SoakCluster) -> Step:
        return Step("fail", self._pick(cluster, MemberState.ASSUMED))

    def _refuse(self, cluster: SoakCluster) -> Step:
        leaving = sorted(uid for uid, record in cluster.state.pods.items() if record.evicting)
        return Step("refuse", self._random.choice(leaving) if leaving else "", {"seconds": 20})

    def _resize(self, cluster: SoakCluster) -> Step:
        name = self._pick(cluster, MemberState.RUNNING, MemberState.ASSUMED, MemberState.PENDING)
        return Step("resize", name, {"cpu": self._random.choice([1, 3])})

    def _wait(self, cluster: SoakCluster) -> Step:
        return Step("wait", how={"seconds": self._random.choice([1, 10, 10, 60, 300])})

    def _window(self, cluster: SoakCluster) -> Step:
        draw = self._random
        how = {"nodes": [f"n{draw.randrange(NODES)}"], "start": draw.choice([30, 600]), "length": 600}
        return Step("window", draw.choice("vw"), how)

    def _no_window(self, cluster: SoakCluster) -> Step:
        return Step("no_window", self._random.choice("vw"))

    def _restart(self, cluster: SoakCluster) -> Step:
        return Step("restart")


def play(step: Step, cluster: SoakCluster) -> None:
    """Lets it happen."""
    _PLAYS[step.what](cluster, step.name, dict(step.how))


_POD_FIELDS = ("queue", "priority", "quota", "cpu", "gpu", "role")


def _pod(cluster: SoakCluster, name: str, how: dict[str, Any], gang: str = "") -> None:
    limit = how.pop("limit", 0)
    more: dict[str, Any] = {"run_time": RunTime(limit), "grace": 0} if limit else {}
    fields = {key: value for key, value in how.items() if key in _POD_FIELDS}
    own = how.get("own")
    more |= {"preemptable": False} if own == "preemptable" else {"cooldown": 100} if own == "cooldown" else {}
    fields["firm"] = own == "firm"
    ports = (HostPort(how["port"]),) if "port" in how else ()
    made = PodClass(run_limit=limit, peers=_peers(how), host_ports=ports)
    cluster.amounts_only &= made.peers == NO_PEERS and not ports
    if made.peers != NO_PEERS:
        more["labels"] = (("app", "web"),)
    cluster.pod(name, gang=gang, pod_class=made, more=more, **fields)


def _peers(how: dict[str, Any]) -> Peers:
    if "away" in how:
        return Peers(anti=(PeerTerm(_WEB, how["away"]),))
    return Peers(spread=(Spread(_WEB, how["even"]),)) if "even" in how else NO_PEERS


def _job(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    near = {"hard": TopologyRule.by_label(RACK), "soft": TopologyRule(preferred=RACK)}.get(how.pop("near", ""))
    members, minimum, mate = how.pop("members"), how.pop("minimum"), how.pop("mate", "")
    more: dict[str, Any] = {"match_policy": MatchPolicy(how.pop("match", "waiting-and-running"))}
    if how.pop("queued", False):
        asked = amounts(**{key: how[key] * minimum for key in ("cpu", "gpu") if key in how})
        more |= {"admission": True, "admitted": False, "min_resources": asked}
    roles = ("ps", "worker") if how.pop("roles", False) and minimum > 1 else ("",)
    if len(roles) > 1:
        more["roles"] = tuple((role, 1) for role in roles)
    if mate and cluster.knows_gang(mate):
        both = sorted(GangKey(cluster.namespace, each) for each in (name, mate))
        more["gang_group"] = tuple(both)
        found = cluster.state.gangs[GangKey(cluster.namespace, mate)].spec
        assert found is not None
        if found.gang_group:
            more.pop("gang_group")
        else:
            cluster.gang(mate, found.min_member, gang_group=tuple(both))
    cluster.gang(name, minimum, created=cluster.now, queue=how["queue"], topology=near, **more)
    for number in range(members):
        _pod(cluster, f"{name}-{number}", how | {"role": roles[number % len(roles)]}, gang=name)


def _grow(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if name and cluster.knows_gang(name):
        _pod(cluster, how.pop("pod"), how, gang=name)


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
        fields = {key: value for key, value in how.items() if key in _POD_FIELDS}
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
    elif name in cluster.state.pods and cluster.state.pods[name].evicting:
        cluster.depart(name)


def _fail(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if cluster.has(name, MemberState.ASSUMED):
        cluster.binding_fails(name)


def _refuse(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if name in cluster.state.pods and cluster.state.pods[name].evicting:
        cluster.state.pods.eviction_refused(name, cluster.now + how["seconds"])


def _resize(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if name in cluster.state.pods:
        pod = cluster.state.pods[name].pod
        asked = requests_of(dict(pod.usage) | dict(amounts(**how)))
        # A pod without a node gets the fields of its spec.
        changed = {} if pod.node else {"pod_class": msgspec.structs.replace(pod.pod_class, requests=asked)}
        cluster.becomes(name, usage=asked, **changed)


def _wait(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
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


_PLAYS = {
    "node": _node,
    "no_node": _no_node,
    "queue": _queue,
    "quota": _quota,
    "tree": _tree,
    "foreign": _foreign,
    "expects": _expects,
    "job": _job,
    "single": lambda cluster, name, how: _pod(cluster, name, how),
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
}
