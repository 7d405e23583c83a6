"""Scenarios of KEP 9, capacity scheduling with elastic quotas: both user stories and both worked examples."""

from __future__ import annotations

from phalanx.demo.quota_board import PRIORITY_CLASSES, QuotaBoard, gpu_nodes
from phalanx.demo.stage import GPU, NodePlan, Scenario, ScenarioError, ScenarioRun

# Name of the limit in verdicts: borrowing is limited to the sum of all min.
_ALL = "all ElasticQuotas together"
_POLICY = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
_ONE_NODE = """\
configurations:
- name: preempt
  arguments: {singleNodePreemption: true}
- name: reclaim
  arguments: {singleNodePreemption: true}
"""
_HIGH = {"metadata": {"name": "high-priority"}, "value": 1_000_000, "description": "Sample High Priority Class"}


class ElasticQuota1(Scenario):
    name = "elastic-quota-1"
    summary = "story 1: A (min 4, max 6) borrows from B (min 6, max 8) on 10 GPUs, until B reclaims it"
    nodes = gpu_nodes(10)

    async def play(self, stage: ScenarioRun) -> None:
        board = QuotaBoard(stage, GPU)
        stage.title("Both users are within their min")
        await board.quota("user-a", 4, 6)
        await board.quota("user-b", 6, 8)
        stage.say("created ElasticQuota user-a (min 4, max 6) and user-b (min 6, max 8); the cluster has 10 GPUs")
        await board.deploy("user-a", "train", 2)
        await board.deploy("user-b", "serve", 3)
        stage.say("user A deploys 2 pods with a GPU each, user B 3")
        await board.until_used(user_a=2, user_b=3)
        stage.title("A reaches its min: nothing is borrowed")
        await board.scale("user-a", "train", 4)
        stage.say("user A scales to 4")
        await board.until_used(user_a=4, user_b=3)
        stage.title("A requests the 3 free GPUs and gets 2: its max is 6")
        stage.say("user A deploys a pod with 2 GPUs, and then one with 1")
        await board.deploy("user-a", "big", 1, amount=2)
        await board.until_used(user_a=6, user_b=3)
        await board.deploy("user-a", "more", 1)
        await board.waits("user-a", "more", "ElasticQuota user-a/user-a", "max 6")
        await board.usage_stays(user_a=6, user_b=3)
        stage.say("A borrows 2 GPUs of B's guarantee, which B does not use at the moment")
        await stage.show_command("quota", "list")
        stage.title("B requests 3 more, within its min: 1 GPU is free, A borrows 2")
        before = await board.running("user-a")
        await board.deploy("user-b", "urgent", 1, amount=3)
        stage.say("user B deploys a pod with 3 GPUs")
        await board.evicted("user-a", before, "big")
        await board.until_used(user_a=4, user_b=6)
        stage.say(
            "one pod with 2 GPUs was evicted instead of two with 1 each;\n"
            "borrowed quota is reclaimed at any priority"
        )
        stage.title("B requests 1 more: A uses only its guarantee now")
        await board.deploy("user-b", "extra", 1)
        await board.waits("user-b", "extra", _ALL)
        await board.usage_stays(user_a=4, user_b=6)
        await board.why("user-b", "extra", "Evictions: none")
        stage.say("A has 4 and B has 6: each has its min")


class ElasticQuota2(Scenario):
    name = "elastic-quota-2"
    summary = "story 2: A (3, 4), B (4, 6), C (3, 4) on 10 GPUs; which pods are evicted, and which are not"
    nodes = gpu_nodes(10)

    async def play(self, stage: ScenarioRun) -> None:
        board = QuotaBoard(stage, GPU)
        stage.title("All three users are within their min")
        for user, least, most in (("user-a", 3, 4), ("user-b", 4, 6), ("user-c", 3, 4)):
            await board.quota(user, least, most)
        stage.say("created the quotas A (min 3, max 4), B (min 4, max 6), C (min 3, max 4)")
        for user, count in (("user-a", 2), ("user-b", 2), ("user-c", 3)):
            await board.deploy(user, "work", count)
        await board.until_used(user_a=2, user_b=2, user_c=3)
        stage.title("A reaches its max, B has 3: the cluster is full")
        stage.say("user A scales to 4, user B to 3")
        await board.scale("user-a", "work", 4)
        await board.scale("user-b", "work", 3)
        await board.until_used(user_a=4, user_b=3, user_c=3)
        stage.title("B requests 1 more, within its min")
        before = await board.running("user-a")
        stage.say("user B scales to 4")
        await board.scale("user-b", "work", 4)
        await board.evicted("user-a", before, "work")
        await board.until_used(user_a=3, user_b=4, user_c=3)
        stage.say(
            "3 + 1 is within B's min of 4, so the quota above its min has to give: A (4 of 3), not C (3 of 3)"
        )
        stage.title("B uses 5 GPUs in two pods and requests 1 more, above its min")
        stage.say("user A scales to 2, user B replaces its pods by PodB with 3 GPUs and PodA with 2")
        await board.scale("user-a", "work", 2)
        await board.scale("user-b", "work", 0)
        await board.until_used(user_a=2, user_b=0, user_c=3)
        await board.deploy("user-b", "pod-b", 1, amount=3)
        await board.until_used(user_a=2, user_b=3, user_c=3)
        await board.deploy("user-b", "pod-a", 1, amount=2)
        await board.until_used(user_a=2, user_b=5, user_c=3)
        await stage.create(PRIORITY_CLASSES, _HIGH)
        before = await board.running("user-b")
        await board.deploy("user-b", "pod-c", 1, priority_class="high-priority")
        stage.say("user B deploys PodC with 1 GPU and a high priority")
        await board.evicted("user-b", before, "pod-a")
        await board.until_used(user_a=2, user_b=4, user_c=3)
        stage.say(
            "5 + 1 is above B's min of 4: only a pod of B with a lower priority can be evicted,\n"
            "and of two such pods the one with less work to lose: PodA"
        )


class ElasticQuota3(Scenario):
    name = "elastic-quota-3"
    summary = "a high priority evicts no pod of another namespace's quota"
    nodes = (NodePlan("node-1", {"cpu": "4", "memory": "16Gi"}),)

    async def play(self, stage: ScenarioRun) -> None:
        board = QuotaBoard(stage, "cpu")
        stage.title("quota1 borrows the one CPU that quota3 does not use")
        for name, least in (("quota1", 0), ("quota2", 0), ("quota3", 1)):
            await board.quota(name, least, 2)
        stage.say("created quota1 and quota2 (min 0, max 2 CPU) and quota3 (min 1, max 2)")
        await board.deploy("quota1", "nginx", 1)
        await board.until_used(quota1=1, quota2=0, quota3=0)
        stage.title("quota2 deploys the same with a high priority")
        await stage.create(PRIORITY_CLASSES, _HIGH)
        await board.deploy("quota2", "nginx", 1, priority_class="high-priority")
        await board.waits("quota2", "nginx", _ALL)
        await board.usage_stays(quota1=1, quota2=0, quota3=0)
        stage.say(
            "the node has free CPU, but the sum of all min is 1 CPU; a priority counts within a namespace only"
        )
        await board.why("quota2", "nginx", "Evictions: none", "would use more cpu than its min")
        stage.title("quota3 reclaims its CPU: it is within its min and needs no priority")
        before = await board.running("quota1")
        await board.deploy("quota3", "nginx", 1)
        await board.evicted("quota1", before, "nginx")
        await board.until_used(quota1=0, quota2=0, quota3=1)
        stage.title("quota3 is done, and the next quota can borrow its CPU")
        stage.say("quota3's Deployment is scaled to 0")
        await board.scale("quota3", "nginx", 0)
        await board.until_used(quota1=0, quota2=1, quota3=0)
        stage.say("both quotas wait for the CPU; the higher priority gets it")


class ElasticQuota4(Scenario):
    name = "elastic-quota-4"
    summary = "borrowed CPUs on two nodes, reclaimed for one pod: KEP 9's limitation to one node, and without it"
    nodes = (
        NodePlan("node-1", {"cpu": "2", "memory": "16Gi"}),
        NodePlan("node-2", {"cpu": "2", "memory": "16Gi"}),
    )
    policy = _POLICY + _ONE_NODE

    async def play(self, stage: ScenarioRun) -> None:
        board = QuotaBoard(stage, "cpu")
        stage.title("quota1 borrows both CPUs of quota2, one on each node")
        await board.quota("quota1", 0, 2)
        await board.quota("quota2", 2, 2)
        stage.say("created quota1 (min 0, max 2 CPU) and quota2 (min 2, max 2); two nodes with 2 CPUs each")
        await board.deploy("quota1", "nginx", 2)
        await board.until_used(quota1=2, quota2=0)
        stage.namespace = "quota1"
        await stage.show_pods()
        if len({pod.node for pod in await stage.pods()}) != 2:
            raise ScenarioError("the two pods of quota1 share a node")
        stage.title("With the limitation: victims of one node at a time")
        stage.say("the policy sets singleNodePreemption: true for preempt and reclaim")
        await board.deploy("quota2", "nginx", 1, amount=2)
        stage.say("quota2 reclaims its 2 CPUs for one pod")
        await board.waits("quota2", "nginx", _ALL, "2 cpu in use")
        await board.usage_stays(quota1=2, quota2=0)
        await board.why("quota2", "nginx", "2 pods would have to be", "remove singleNodePreemption from the policy")
        stage.title("Without the limitation")
        before = await board.running("quota1")
        await stage.change_policy(_POLICY)
        stage.say("removed singleNodePreemption from the policy file; the scheduler reloads it")
        await board.evicted("quota1", before, "nginx", count=2)
        await board.until_used(quota1=0, quota2=2)
        stage.say("both pods were evicted, from two nodes at once: quota2 has its guarantee back")
