"""Scenario of network topology: gangs in one rack, under one spine, and subgroups in racks of their own."""

from __future__ import annotations

from typing import Any

from phalanx.demo.stage import GPU, NodePlan, Scenario, ScenarioError, ScenarioRun, StagePod, pod
from phalanx.demo.workloads import POD_GROUPS
from phalanx.kube.client import PatchType
from phalanx.kube.paths import Resource

_HYPER_NODES = Resource("topology.volcano.sh", "v1alpha1", "hypernodes", "HyperNode", namespaced=False)
_RACKS = ("r1", "r2", "r3", "r4")
_SPINES = {"s1": ("r1", "r2"), "s2": ("r3", "r4")}
_PICTURE = """\
        spine s1              spine s2          tier 2
     rack r1   rack r2     rack r3   rack r4    tier 1
     r1a r1b   r2a r2b     r3a r3b   r4a r4b    nodes with 2 GPUs each"""


class TopologyDemo(Scenario):
    name = "topology"
    summary = "HyperNodes: a whole gang in one rack, one that needs a spine, a replacement that stays, subgroups"
    nodes = tuple(
        NodePlan(f"{rack}{place}", {"cpu": "16", "memory": "64Gi", GPU: "2"}) for rack in _RACKS for place in "ab"
    )

    async def play(self, stage: ScenarioRun) -> None:
        for rack in _RACKS:
            await stage.create(_HYPER_NODES, _hypernode(rack, 1, "Node", [f"{rack}a", f"{rack}b"]))
        for spine, racks in _SPINES.items():
            await stage.create(_HYPER_NODES, _hypernode(spine, 2, "HyperNode", racks))
        await stage.enter("network")
        stage.title("Eight nodes in four racks under two spines, described by HyperNode objects")
        stage.say(_PICTURE)

        stage.title("A gang of four that must stay in one rack")
        await stage.create_pods([_member("other-0", "", node="r1a"), _member("other-1", "", node="r3b")])
        await stage.until_running(2)
        await _submit(stage, "tight", 4, tier=1)
        pods = await stage.until_running(4, "tight")
        if _racks(pods) not in ({"r2"}, {"r4"}):
            raise ScenarioError(f"expected tight in a whole rack; it is in {', '.join(sorted(_racks(pods)))}")
        await stage.show_gpus()
        stage.say("only r2 and r4 have four free GPUs; half a gang in a rack is never tried")

        stage.title("A gang of five fits into no rack")
        await _submit(stage, "wide", 5, tier=1)
        await stage.until_explained(5, "wide")
        answer = await stage.show_why("wide")
        if "best of 4 domains of tier 1" not in answer.message:
            raise ScenarioError("expected the rack with the most members in the verdict")
        higher = {"spec": {"networkTopology": {"mode": "hard", "highestTierAllowed": 2}}}
        await stage.client.patch(POD_GROUPS.path(stage.namespace, "wide"), higher, PatchType.MERGE)
        stage.say("its owner allows a spine: highestTierAllowed: 2")
        pods = await stage.until_running(5, "wide")
        if not any(_racks(pods) <= set(racks) for racks in _SPINES.values()):
            raise ScenarioError(f"expected wide under one spine; it is in {', '.join(sorted(_racks(pods)))}")
        await stage.show_gpus()
        stage.say(f"PodGroup wide: volcano.sh/job-allocated-hypernode: {await _hyper_node_of(stage, 'wide')}")

        stage.title("A member is lost: its replacement waits for its own rack, although other racks have free GPUs")
        rack = next(iter(_racks(await stage.until_running(4, "tight"))))
        lost = next(entry for entry in await stage.pods() if entry.name == "tight-0")
        await stage.delete_pods("tight-0")
        await stage.create_pods([_member("guest", "", node=lost.node), _member("tight-9", "tight")])
        await stage.until_explained(1, "tight-9")
        answer = await stage.show_why("tight")
        if f"in {rack} (tier 1 of the placed pods)" not in answer.message:
            raise ScenarioError("expected the verdict that only its own rack is allowed")
        await stage.delete_pods("guest")
        stage.say("pod guest is deleted")
        pods = await stage.until_running(4, "tight")
        if _racks(pods) != {rack}:
            raise ScenarioError(f"expected tight in {rack}; it is in {', '.join(sorted(_racks(pods)))}")
        await stage.show_gpus()


def _hypernode(name: str, tier: int, kind: str, members: Any) -> dict[str, Any]:
    entries = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members]
    return {"metadata": {"name": name}, "spec": {"tier": tier, "members": entries}}


async def _submit(stage: ScenarioRun, name: str, members: int, *, tier: int) -> None:
    topology = {"mode": "hard", "highestTierAllowed": tier}
    await stage.create(
        POD_GROUPS, {"metadata": {"name": name}, "spec": {"minMember": members, "networkTopology": topology}}
    )
    await stage.create_pods([_member(f"{name}-{number}", name) for number in range(members)])
    stage.say(f"submitted gang {name}: {members} pods with a GPU each, hard, highestTierAllowed: {tier}")


def _member(name: str, gang: str, node: str = "") -> dict[str, Any]:
    notes = {"scheduling.k8s.io/group-name": gang} if gang else {}
    document = pod(name, requests={"cpu": "1", GPU: "1"}, annotations=notes)
    if node:
        document["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return document


def _racks(pods: list[StagePod]) -> set[str]:
    return {entry.node[:2] for entry in pods}


async def _hyper_node_of(stage: ScenarioRun, name: str) -> str:
    """Return the HyperNode in a group's annotation."""
    hyper_nodes: list[str] = []

    async def is_annotated() -> bool:
        group = await stage.client.get(POD_GROUPS.path(stage.namespace, name))
        hyper_nodes[:] = filter(
            None, [group["metadata"].get("annotations", {}).get("volcano.sh/job-allocated-hypernode")]
        )
        return bool(hyper_nodes)

    await stage.until(is_annotated, f"PodGroup {name} is annotated with its HyperNode")
    return hyper_nodes[0]
