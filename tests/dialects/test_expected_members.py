"""Spark and other leaders that create their members: from objects to claimed room, and through a restart."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import decode_node
from phalanx.dialects.gangs.held_room import HELD_ROOM, decode_held, encode_held
from phalanx.dialects.intake import Intake
from phalanx.dialects.signatures import Signer
from phalanx.dialects.times import format_time
from phalanx.model.events import ClusterEvent
from phalanx.model.gang import GangKey
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler
from tests.cluster.audit import audit
from tests.dialects.objects import EPOCH, VOLCANO, container, group, pod

SIGNER = Signer((("1", b"k" * 32),))
NAME = "scheduling.k8s.io/group-name"


class World:
    """A scheduler fed with objects; the driver's binding returns as the API shows it. `distrusted` lists foreign
    claims.
    """

    def __init__(self, nodes: int = 2, cpu: int = 4, signer: Signer = SIGNER) -> None:
        self.distrusted: list[str] = []
        self.nodes, self.cpu, self.signer = nodes, cpu, signer
        self.now = EPOCH
        self.documents: dict[str, Any] = {}
        self.begin()

    def begin(self) -> None:
        self.intake = Intake(["phalanx"], signer=self.signer, distrust=lambda key, *_: self.distrusted.append(key))
        self.state = ClusterState()
        self.scheduler = Scheduler(self.state, load_policy())
        for number in range(self.nodes):
            capacity = {"cpu": str(self.cpu), "memory": "64Gi", "pods": "110"}
            node = {"metadata": {"name": f"n{number}"}, "status": {"allocatable": capacity}}
            self.apply(self.intake.node(decode_node(msgspec.json.encode(node))))

    def apply(self, events: list[ClusterEvent]) -> None:
        for event in events:
            self.state.apply(event)
        audit(self.state)

    def group(self, name: str = "app", phase: str = "Inqueue", **spec: Any) -> World:
        self.documents[f"group {name}"] = document = group(name, status={"phase": phase}, **spec)
        self.apply(self.intake.group(VOLCANO, document))
        return self

    def pod(self, name: str, **details: Any) -> World:
        self.documents[f"pod {name}"] = details
        self.apply(self.intake.pod(pod(name, **details)))
        return self

    def driver(self, app: str = "app", cpu: str = "1", memory: str = "", **details: Any) -> World:
        labels = {"spark-role": "driver", "spark-app-selector": app, **details.pop("labels", {})}
        annotations = {NAME: app, **details.pop("annotations", {})}
        return self.pod(
            f"{app}-driver",
            labels=labels,
            annotations=annotations,
            containers=[container(cpu=cpu, memory=memory) if memory else container(cpu=cpu)],
            **details,
        )

    def executor(self, number: int, app: str = "app", cpu: str = "1", **details: Any) -> World:
        labels = {"spark-role": "executor", "spark-app-selector": app}
        return self.pod(
            f"{app}-exec-{number}",
            labels=labels,
            annotations={NAME: app},
            containers=[container(cpu=cpu)],
            created=EPOCH + 10,
            **details,
        )

    def cycle(self) -> World:
        """Run one plan, and apply the API's answers to its bindings."""
        for bind in self.scheduler.cycle(float(self.now)).binds:
            details = self.documents[f"pod {bind.name}"]
            assert bind.gang is not None
            held = encode_held(bind.held, self.signer, bind.uid, bind.gang)
            annotations = {**details["annotations"], **held}
            moment = format_time(self.now)
            bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment}
            self.pod(
                bind.name,
                **{**details, "annotations": annotations},
                node=bind.node,
                phase="Running",
                status={"conditions": [bound], "startTime": moment},
            )
        audit(self.state)
        return self

    def restart(self, order: int = 1) -> World:
        """Start a new process that sees all objects, in one order or the other."""
        self.begin()
        for key in sorted(self.documents)[::order]:
            kind, _, name = key.partition(" ")
            if kind == "group":
                self.apply(self.intake.group(VOLCANO, self.documents[key]))
            else:
                self.apply(self.intake.pod(pod(name, **self.documents[key])))
        return self

    def held(self) -> list[str]:
        """Return the nodes with claimed room."""
        return sorted(each.nominated_node for each in self.state.pods.placeholders.values() if each.nominated_node)

    def expected(self) -> int:
        return len(self.state.pods.placeholders)

    def where(self, name: str) -> str:
        return self.state.pods[f"uid-{name}"].pod.node


SPARK: dict[str, Any] = {"minMember": 1, "minResources": {"cpu": "4", "memory": "3Gi"}}


class TestSpark:
    def test_group_of_the_spark_operator_states_the_room_of_the_executors(self) -> None:
        world = World().group(**SPARK).driver().cycle()
        assert world.where("app-driver")
        assert len(world.held()) == 3

    @pytest.mark.parametrize("memory", ["512m", None, "2Gi"])
    def test_impossible_amount_of_memory_is_ignored(self, memory: str | None) -> None:
        """The Spark operator reads Spark's units as Kubernetes': `512m`, and `8g` not at all. A sum without a
        remainder is an error.
        """
        stated = {"cpu": "4", **({"memory": memory} if memory else {})}
        world = World(nodes=3).group(minMember=1, minResources=stated)
        world.driver(memory="2Gi").cycle()
        usages = {dict(each.pod.usage).get("memory", 0) for each in world.state.pods.placeholders.values()}
        assert usages == {0 if memory == "2Gi" else 2 * 2**30}
        assert len(world.held()) == 3

    def test_cluster_without_room_for_executors_starts_no_driver(self) -> None:
        world = World(nodes=1, cpu=3).group(**SPARK).driver().cycle()
        assert world.where("app-driver") == ""
        assert world.held() == []

    def test_executors_use_their_claimed_room(self) -> None:
        world = World().group(**SPARK).driver().cycle()
        for number in range(3):
            world.executor(number)
        world.cycle()
        assert all(world.where(f"app-exec-{number}") for number in range(3))
        assert world.expected() == 0

    def test_driver_can_state_the_number_and_size_of_executors(self) -> None:
        """By `spark.kubernetes.driver.annotation.phalanx.dev/...`, where no group states it."""
        said = {"phalanx.dev/expected-members": "5", "phalanx.dev/expected-requests": '{"cpu": "500m"}'}
        world = World().group(minMember=1).driver(annotations=said).cycle()
        assert len(world.held()) == 5

    def test_number_alone_divides_the_remaining_min_resources(self) -> None:
        said = {"phalanx.dev/expected-members": "6"}
        world = World().group(**SPARK).driver(annotations=said)
        assert {record.pod.usage[0] for record in world.state.pods.placeholders.values()} == {("cpu", 500)}

    def test_group_without_min_resources_expects_no_member(self) -> None:
        world = World().group(minMember=1).driver().cycle()
        assert world.where("app-driver")
        assert world.expected() == 0

    def test_groups_of_other_dialects_expect_members_on_request(self) -> None:
        asks = {"phalanx.dev/expected-members": "min-resources"}
        world = World().group(annotations=asks, **SPARK)
        world.pod("jm", annotations={NAME: "app"}, containers=[container(cpu="1")]).cycle()
        assert len(world.held()) == 3

    def test_groups_without_the_request_are_unchanged(self) -> None:
        world = World().group(**SPARK).pod("jm", annotations={NAME: "app"}, containers=[container(cpu="1")]).cycle()
        assert world.where("jm")
        assert world.expected() == 0


class TestNativeSpark:
    """`spark-submit` in cluster mode: no operator, no PodGroup, only the labels that Spark writes on every pod."""

    SAYS: Mapping[str, str] = MappingProxyType(
        {"phalanx.dev/expected-members": "3", "phalanx.dev/expected-requests": '{"cpu": "1"}'}
    )

    def driver(self, world: World, app: str = "spark-1", **annotations: str) -> World:
        labels = {"spark-app-selector": app, "spark-role": "driver"}
        said = {**self.SAYS, **annotations}
        return world.pod(f"{app}-driver", labels=labels, annotations=said, containers=[container(cpu="1")])

    def executor(self, world: World, number: int, app: str = "spark-1") -> World:
        labels = {"spark-app-selector": app, "spark-role": "executor", "spark-exec-id": str(number)}
        name = f"{app}-exec-{number}"
        containers = [container(cpu="1")]
        return world.pod(name, labels=labels, annotations={}, containers=containers, created=EPOCH + number)

    def test_driver_starts_with_room_for_its_executors_which_use_it(self) -> None:
        world = self.driver(World()).cycle()
        assert world.where("spark-1-driver")
        assert len(world.held()) == 3
        for number in (1, 2, 3):
            self.executor(world, number)
        world.cycle()
        assert all(world.where(f"spark-1-exec-{number}") for number in (1, 2, 3))
        assert world.expected() == 0

    def test_driver_without_room_for_its_executors_waits(self) -> None:
        world = self.driver(World(nodes=1, cpu=3)).cycle()
        assert world.where("spark-1-driver") == ""

    def test_many_drivers_leave_room_for_executors(self) -> None:
        """Four apps of four pods, room for eight: two run, each with all its executors."""
        world = World()
        apps = [f"spark-{number}" for number in range(4)]
        for app in apps:
            self.driver(world, app)
        world.cycle()
        running = [app for app in apps if world.where(f"{app}-driver")]
        assert len(running) == 2
        for app in running:
            for number in (1, 2, 3):
                self.executor(world, number, app)
        world.cycle()
        assert all(world.where(f"{app}-exec-{number}") for app in running for number in (1, 2, 3))
        assert world.cycle().expected() == 6, "of the two that wait"

    def test_executors_beyond_the_number_are_surplus(self) -> None:
        """Dynamic allocation creates more than the driver stated."""
        world = self.driver(World(nodes=1, cpu=5)).cycle()
        for number in range(1, 7):
            self.executor(world, number)
        world.cycle()
        assert sum(bool(world.where(f"spark-1-exec-{number}")) for number in range(1, 7)) == 4

    @pytest.mark.parametrize("order", [1, -1])
    def test_restart_of_the_scheduler_changes_nothing(self, order: int) -> None:
        world = self.executor(self.driver(World()).cycle(), 1).cycle()
        held = world.held()
        assert len(held) == 2
        assert world.restart(order).held() == held

    def test_unused_room_is_released_after_its_time(self) -> None:
        world = self.driver(World()).cycle()
        world.now += 300
        assert world.cycle().held() == []


class TestRestart:
    @pytest.mark.parametrize("order", [1, -1])
    def test_room_is_claimed_on_the_same_nodes_after_a_restart(self, order: int) -> None:
        world = World().group(**SPARK).driver().cycle()
        held = world.held()
        world.restart(order)
        assert world.held() == held
        assert world.cycle().held() == held

    @pytest.mark.parametrize("order", [1, -1])
    def test_used_room_is_not_claimed_again_after_a_restart(self, order: int) -> None:
        world = World().group(**SPARK).driver().cycle().executor(0).cycle()
        held = world.held()
        assert len(held) == 2
        assert world.restart(order).held() == held

    def test_time_of_claims_continues_after_a_restart(self) -> None:
        world = World().group(**SPARK).driver().cycle().restart()
        assert world.scheduler.next_recheck == EPOCH + 300
        world.now += 300
        world.cycle()
        assert world.expected() == 0

    def test_driver_deleted_during_a_restart_claims_nothing(self) -> None:
        world = World().group(**SPARK).driver().cycle()
        world.documents["pod app-driver"]["phase"] = "Failed"
        assert world.restart().expected() == 0

    def test_claim_annotation_by_the_owner_of_a_pod_claims_nothing(self) -> None:
        """A copy from another app's driver claims nothing either."""
        world = World().group(**SPARK).driver().cycle()
        text = world.documents["pod app-driver"]["annotations"][HELD_ROOM]
        world.documents["pod app-driver"]["annotations"][HELD_ROOM] = text.replace(":1", ":9").replace(":2", ":9")
        assert world.restart().held() == []
        assert world.distrusted == [HELD_ROOM]


class TestNominatedLeader:
    GANG = GangKey("default", "app")

    def waiting(self, order: int = 1, *, nominated: str = "n1", signed_for: str = "n1") -> World:
        """Return a new process that observes a driver without a node, whose annotation has held room."""
        world = World().group(**SPARK).driver()
        details = world.documents["pod app-driver"]
        gang = world.state.pods["uid-app-driver"].gang
        assert gang is not None
        held = encode_held(["n0", "n1", "n1"], world.signer, "uid-app-driver", gang.key, signed_for)
        details["annotations"] |= held
        details["status"] = {"nominatedNodeName": nominated}
        return world.restart(order)

    @pytest.mark.parametrize("order", [1, -1])
    def test_room_is_claimed_on_the_same_nodes_after_a_restart(self, order: int) -> None:
        assert self.waiting(order).held() == ["n0", "n1", "n1"]

    @pytest.mark.parametrize("nominated", ["", "n2"])
    def test_annotation_of_another_nomination_claims_nothing_and_is_no_forgery(self, nominated: str) -> None:
        world = self.waiting(nominated=nominated)
        assert (world.held(), world.distrusted) == ([], [])

    def test_annotation_of_a_bound_leader_claims_nothing_while_the_pod_waits(self) -> None:
        assert self.waiting(nominated="", signed_for="").held() == []

    def test_annotation_of_a_nomination_claims_nothing_once_the_pod_runs(self) -> None:
        world = self.waiting()
        world.documents["pod app-driver"] |= {"node": "n1", "phase": "Running"}
        world.restart()
        assert (world.held(), world.distrusted) == ([], [])

    def test_withdrawn_room_is_not_published_again(self) -> None:
        world = self.waiting()
        details = world.documents["pod app-driver"]
        annotations = {name: text for name, text in details["annotations"].items() if name != HELD_ROOM}
        world.pod("app-driver", **{**details, "annotations": annotations, "status": {}})
        nominated = [record.pod.nominated_node for record in world.state.pods.placeholders.values()]
        assert nominated == ["", "", ""]


class TestLeader:
    @pytest.mark.parametrize("end", [{"phase": "Succeeded"}, {"phase": "Failed"}, {"terminating": True}])
    def test_ended_leader_expects_no_member(self, end: dict[str, Any]) -> None:
        world = World().group(**SPARK).driver().cycle()
        world.pod("app-driver", **{**world.documents["pod app-driver"], **end})
        assert world.expected() == 0

    def test_replacement_of_a_leader_expects_all_members_again(self) -> None:
        world = World().group(**SPARK).driver().cycle().executor(0).cycle()
        world.apply(world.intake.pod_removed("default", "app-driver", ""))
        world.apply(world.intake.pod_removed("default", "app-exec-0", ""))
        world.driver(uid="second", created=EPOCH + 100)
        assert world.expected() == 3

    def test_deleted_executor_is_not_expected_again(self) -> None:
        world = World().group(**SPARK).driver().cycle().executor(0).cycle()
        world.apply(world.intake.pod_removed("default", "app-exec-0", ""))
        assert world.expected() == 2

    def test_deleted_group_removes_its_expected_members(self) -> None:
        world = World().group(**SPARK).driver().cycle()
        world.apply(world.intake.group_removed(VOLCANO, "default", "app"))
        assert world.expected() == 0

    def test_driver_of_another_scheduler_expects_no_member_here(self) -> None:
        assert World().group(**SPARK).driver(schedulerName="default-scheduler").expected() == 0


class TestBadInput:
    @pytest.mark.parametrize(
        ("key", "value", "advice"),
        [
            ("expected-members", "many", "write a whole number from 1 to 5000"),
            ("expected-members", "0", "write a whole number"),
            ("expected-members", "999999999", "write a whole number"),
            ("expected-requests", "1 cpu", 'write a map such as {"cpu": "1", "memory": "2Gi"}'),
            ("expected-requests", '{"cpu": "one"}', "write a map"),
            ("expected-requests", "{}", "write a map"),
            ("expected-timeout", "soon", "duration"),
            ("expected-timeout", "48h", "at most 60m"),
        ],
    )
    def test_bad_field_is_named_and_the_driver_starts(self, key: str, value: str, advice: str) -> None:
        said = {"phalanx.dev/expected-members": "1", f"phalanx.dev/{key}": value}
        world = World().group(minMember=1).driver(annotations=said)
        (warning,) = [each for each in world.intake.drain_warnings() if each.reason == "InvalidExpectedMembers"]
        assert f"phalanx.dev/{key}" in warning.message
        assert advice in warning.message
        assert world.cycle().where("app-driver")


class TestClaimAnnotation:
    GANG = GangKey("default", "app")

    def test_claim_annotation_is_read_back_as_written(self) -> None:
        text = encode_held(["b", "a", "a"], SIGNER, "u", self.GANG)[HELD_ROOM]
        assert decode_held(text, SIGNER, "u", self.GANG) == ("a", "a", "b")

    @pytest.mark.parametrize(
        ("uid", "gang"), [("v", GANG), ("u", GangKey("default", "b")), ("u", GangKey("b", "app"))]
    )
    def test_claim_annotation_is_trusted_on_its_own_pod_only(self, uid: str, gang: GangKey) -> None:
        text = encode_held(["a"], SIGNER, "u", self.GANG)[HELD_ROOM]
        assert decode_held(text, SIGNER, uid, gang) is None

    @pytest.mark.parametrize("text", ["", "/", "x/a:1", "1.x/a:1", "\ud800/a:1"])
    def test_foreign_claim_annotation_is_ignored(self, text: str) -> None:
        assert decode_held(text, SIGNER, "u", self.GANG) is None

    def test_claim_annotation_is_not_written_without_a_key(self) -> None:
        assert encode_held(["a"], Signer(), "u", self.GANG) == {}
