"""A pod's life on a virtual clock: published states and their times."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from phalanx_local.nodeagent.capacity import Rejection
from phalanx_local.nodeagent.core_v1 import V1Pod
from phalanx_local.nodeagent.pod_runtime.containers import RestartBackoff
from phalanx_local.nodeagent.pod_runtime.lifecycle import PodLifecycle, StartContainer, StopContainer
from phalanx_local.nodeagent.pod_runtime.script import ScriptDefaults, ScriptError
from phalanx_local.nodeagent.pod_runtime.status import status_patch

from .pods import container, deleted, edited, pod, with_status

T0 = 1_900_000_000.0
BACKOFF = RestartBackoff(initial=1.0, limit=30.0)


class World:
    """One pod and a clock that jumps from wake-up to wake-up; records each status that would be written."""

    def __init__(
        self, subject: V1Pod, *, fake: bool = True, resume: bool = False, at: float = T0, **defaults: Any
    ) -> None:
        self.now = at
        make = PodLifecycle.resumed if resume else PodLifecycle
        self.life = make(
            subject,
            at,
            defaults=ScriptDefaults(**defaults) if fake else None,
            backoff=BACKOFF,
            pod_ip="10.128.0.9",
        )
        self.writes: list[tuple[float, dict[str, Any]]] = []
        self.commands: list[object] = []
        self.told = 0
        self.settle()

    def settle(self) -> None:
        self.commands += self.life.step(self.now)
        if self.life.revision > self.told:
            self.told = self.life.revision
            self.writes.append((self.now - T0, status_patch(self.life, self.now, "127.0.0.1")["status"]))

    def run(self, seconds: float) -> World:
        end = self.now + seconds
        while (at := self.life.wake_at()) is not None and at <= end:
            self.now = max(self.now, at)
            self.settle()
        self.now = end
        self.settle()
        return self

    def observe(self, subject: V1Pod) -> World:
        self.life.observe(subject, self.now)
        self.settle()
        return self

    def started(self, name: str = "main") -> World:
        self.life.started(name, self.now)
        self.settle()
        return self

    def exited(self, code: int, name: str = "main") -> World:
        self.life.exited(name, self.now, code)
        self.settle()
        return self

    @property
    def phases(self) -> list[tuple[float, str]]:
        return [(at, status["phase"]) for at, status in self.writes]

    @property
    def last(self) -> dict[str, Any]:
        return self.writes[-1][1]

    def condition(self, kind: str) -> str:
        return str(next(c["status"] for c in self.last["conditions"] if c["type"] == kind))

    def state(self, name: str = "main") -> dict[str, Any]:
        statuses = [*self.last.get("initContainerStatuses", []), *self.last["containerStatuses"]]
        return next(dict(s["state"]) for s in statuses if s["name"] == name)


def only(state: dict[str, Any]) -> str:
    (key,) = state
    return str(key)


def test_pod_without_a_run_time_runs_at_once_and_forever() -> None:
    world = World(pod(policy="Always")).run(100_000)
    assert world.phases == [(0, "Running")]
    assert world.last["podIP"] == "10.128.0.9"
    assert world.last["hostIP"] == "127.0.0.1"
    assert world.last["startTime"] == "2030-03-17T17:46:40Z"
    assert [world.condition(c) for c in ("Initialized", "ContainersReady", "Ready")] == ["True"] * 3
    assert only(world.state()) == "running"


def test_pod_succeeds_after_its_run_time() -> None:
    world = World(pod(notes={"run-seconds": "30"})).run(100)
    assert world.phases == [(0, "Running"), (30, "Succeeded")]
    ended = world.state()["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert (ended["startedAt"], ended["finishedAt"]) == ("2030-03-17T17:46:40Z", "2030-03-17T17:47:10Z")
    assert world.condition("Ready") == "False"


def test_pod_fails_with_its_exit_code() -> None:
    world = World(pod(notes={"run-seconds": "5", "exit-code": "3"})).run(100)
    assert world.phases == [(0, "Running"), (5, "Failed")]
    assert world.state()["terminated"]["exitCode"] == 3


def test_a_long_start_is_visible_a_short_one_is_not() -> None:
    slow = World(pod(notes={"start-seconds": "4"})).run(10)
    assert slow.phases == [(0, "Pending"), (4, "Running")]
    assert slow.writes[0][1]["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    quick = World(pod(notes={"start-seconds": "0.25"})).run(10)
    assert quick.phases == [(0.25, "Running")]


def test_the_default_run_time_ends_jobs_and_leaves_services_alone() -> None:
    assert World(pod(policy="Never"), run=7).run(50).phases[-1] == (7, "Succeeded")
    assert World(pod(policy="OnFailure"), run=7).run(50).phases[-1] == (7, "Succeeded")
    assert World(pod(policy="Always"), run=7).run(50).phases == [(0, "Running")]


def test_restart_policy_on_failure_restarts_with_a_growing_back_off() -> None:
    world = World(pod(policy="OnFailure", notes={"run-seconds": "2", "exit-code": "1"})).run(20)
    assert [status["containerStatuses"][0]["restartCount"] for _, status in world.writes] == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
    ]
    assert [at for at, _ in world.writes] == [0, 2, 3, 5, 7, 9, 13, 15]
    assert {phase for _, phase in world.phases} == {"Running"}
    assert world.state()["waiting"]["reason"] == "CrashLoopBackOff"
    assert world.last["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1


def test_restart_policy_always_restarts_a_success_too() -> None:
    world = World(pod(policy="Always", notes={"run-seconds": "2"})).run(4)
    assert world.last["containerStatuses"][0]["restartCount"] == 1
    assert only(world.state()) == "running"


def test_the_longest_back_off_is_bounded_and_a_healthy_run_resets_it() -> None:
    world = World(pod(policy="OnFailure", notes={"run-seconds": "0", "exit-code": "1"})).run(500)
    starts = sorted({at for at, _ in world.writes})
    assert max(later - earlier for earlier, later in pairwise(starts)) == 30
    healthy = World(pod(policy="OnFailure", notes={"run-seconds": "100", "exit-code": "1"})).run(310)
    assert [at for at, _ in healthy.writes] == [0, 100, 101, 201, 202, 302, 303]


def test_init_containers_come_first_and_leave_no_extra_write() -> None:
    world = World(pod(inits=[container("prepare"), container("proxy", restartPolicy="Always")])).run(1)
    assert world.phases == [(0, "Running")]
    assert world.state("prepare")["terminated"]["exitCode"] == 0
    assert only(world.state("proxy")) == "running"


def test_sidecars_end_with_the_main_containers() -> None:
    notes = {"run-seconds": "5"}
    world = World(pod(notes=notes, inits=[container("proxy", restartPolicy="Always")])).run(10)
    assert world.phases == [(0, "Running"), (5, "Succeeded")]
    assert only(world.state("proxy")) == "terminated"


def test_deletion_takes_the_scripts_time_but_at_most_the_grace_period() -> None:
    stubborn = pod(notes={"terminate-seconds": "60"})
    world = World(stubborn).run(10).observe(deleted(stubborn, grace=8)).run(100)
    assert world.phases == [(0, "Running"), (18, "Failed")]
    assert world.state()["terminated"]["exitCode"] == 143
    quick = World(pod()).run(10)
    quick.observe(deleted(pod(), grace=8)).run(100)
    assert quick.phases[-1][0] == pytest.approx(10.1)


def test_a_second_delete_can_only_hasten() -> None:
    stubborn = pod(notes={"terminate-seconds": "60"})
    world = World(stubborn).observe(deleted(stubborn, grace=50)).run(5)
    world.observe(deleted(stubborn, grace=2)).run(1).observe(deleted(stubborn, grace=50)).run(100)
    assert world.phases[-1] == (7, "Failed")


def test_a_pod_deleted_before_it_started_never_ran() -> None:
    slow = pod(notes={"start-seconds": "100"})
    world = World(slow).run(1).observe(deleted(slow)).run(1)
    assert world.life.finished
    assert world.life.never_ran


def test_the_active_deadline_fails_the_pod() -> None:
    world = World(pod(activeDeadlineSeconds=20)).run(100)
    assert world.phases[-1][1] == "Failed"
    assert world.last["reason"] == "DeadlineExceeded"


def test_a_drain_fails_the_pod_without_blame() -> None:
    world = World(pod())
    world.life.drain(world.now)
    world.run(5)
    assert (world.last["phase"], world.last["reason"]) == ("Failed", "Terminated")
    assert world.condition("DisruptionTarget") == "True"


def test_terminal_phase_written_by_another_client_is_preserved() -> None:
    subject = pod(policy="Always")
    world = World(subject).run(5).observe(with_status(subject, {"status": {"phase": "Failed"}})).run(5)
    assert world.life.finished
    assert world.last["phase"] == "Failed"
    assert only(world.state()) == "terminated"


def test_readiness_gates_hold_back_ready_only() -> None:
    gated = pod(readinessGates=[{"conditionType": "example.com/lb"}])
    world = World(gated)
    assert (world.condition("ContainersReady"), world.condition("Ready")) == ("True", "False")
    opened = with_status(gated, {"status": {"conditions": [{"type": "example.com/lb", "status": "True"}]}})
    world.run(3).observe(opened)
    assert world.condition("Ready") == "True"


def test_conditions_keep_the_time_of_their_last_change() -> None:
    world = World(pod(policy="OnFailure", notes={"run-seconds": "2", "exit-code": "1"})).run(2.5)
    since = {c["type"]: c["lastTransitionTime"] for c in world.last["conditions"]}
    assert since["Initialized"] == "2030-03-17T17:46:40Z"
    assert since["Ready"] == "2030-03-17T17:46:42Z"


def test_a_rejected_pod_is_failed_with_the_reason() -> None:
    life = PodLifecycle.rejected(pod(), T0, Rejection("OutOfcpu", "too little"))
    status = status_patch(life, T0, "127.0.0.1")["status"]
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "OutOfcpu", "too little")
    assert life.finished
    assert life.wake_at() is None


@pytest.mark.parametrize(
    ("note", "value"),
    [
        ("run-seconds", "soon"),
        ("run-seconds", "-1"),
        ("run-seconds", "nan"),
        ("start-seconds", "inf"),
        ("terminate-seconds", ""),
        ("exit-code", "256"),
        ("exit-code", "-1"),
        ("exit-code", "one"),
    ],
)
def test_an_annotation_that_cannot_be_followed_is_named(note: str, value: str) -> None:
    with pytest.raises(ScriptError, match=f"phalanx.dev/{note}"):
        World(pod(notes={note: value}))


def test_an_edit_of_the_run_time_counts_while_the_pod_runs() -> None:
    subject = pod(notes={"run-seconds": "1000"})
    world = World(subject).run(10)
    world.observe(edited(subject, annotations={"phalanx.dev/run-seconds": "never"})).run(10)
    assert world.phases == [(0, "Running")]
    world.observe(edited(subject, annotations={"phalanx.dev/run-seconds": "15"}))
    assert world.phases == [(0, "Running"), (20, "Succeeded")]


# After a restart of the agent


def resumed(world: World, after: float, subject: V1Pod, **options: Any) -> World:
    """Return the world of a new agent that reads the last writes of the old one, `after` seconds later."""
    seen = with_status(subject, {"status": world.last})
    return World(seen, resume=True, at=world.now + after, **options)


def test_restarted_agent_continues_from_the_state_of_the_pod() -> None:
    subject = pod(notes={"run-seconds": "30"})
    second = resumed(World(subject).run(10), 5, subject)
    assert second.writes == []
    assert second.run(100).phases == [(30, "Succeeded")]


def test_pod_that_ended_during_downtime_is_reported_late_with_its_true_end() -> None:
    subject = pod(notes={"run-seconds": "30"})
    second = resumed(World(subject).run(10), 500, subject)
    assert second.state()["terminated"]["finishedAt"] == "2030-03-17T17:47:10Z"


def test_a_restarted_agent_waits_out_the_rest_of_a_start_and_of_a_back_off() -> None:
    slow = pod(notes={"start-seconds": "20"})
    assert resumed(World(slow).run(5), 1, slow).run(100).phases == [(20, "Running")]
    crashing = pod(policy="OnFailure", notes={"run-seconds": "2", "exit-code": "1"})
    second = resumed(World(crashing).run(10), 0, crashing).run(3)
    assert (second.writes[0][0], second.last["containerStatuses"][0]["restartCount"]) == (13, 3)


def test_a_finished_pod_stays_finished() -> None:
    subject = pod(notes={"run-seconds": "1"})
    second = resumed(World(subject).run(10), 5, subject).run(1000)
    assert second.life.finished
    assert second.writes == []


def test_conditions_keep_their_times_over_a_restart() -> None:
    subject = pod(notes={"run-seconds": "30"})
    second = resumed(World(subject).run(10), 5, subject).run(100)
    since = {c["type"]: c["lastTransitionTime"] for c in second.last["conditions"]}
    assert since["Initialized"] == "2030-03-17T17:46:40Z"
    assert since["Ready"] == "2030-03-17T17:47:10Z"


def test_processes_that_died_with_their_agent_count_as_killed() -> None:
    subject = pod(policy="Never")
    second = resumed(World(subject, fake=False).started(), 5, subject, fake=False)
    assert second.phases[-1][1] == "Failed"
    ended = second.state()["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")


def test_service_whose_process_died_with_its_agent_is_restarted() -> None:
    subject = pod(policy="Always")
    second = resumed(World(subject, fake=False).started(), 5, subject, fake=False).run(60)
    assert second.commands == [StartContainer("main", 1)]


# Containers that really run


def test_a_real_container_is_started_by_command_and_running_when_the_runtime_says_so() -> None:
    world = World(pod(), fake=False)
    assert world.commands == [StartContainer("main", 0)]
    assert world.writes == []
    assert world.started().phases == [(0, "Running")]
    assert world.run(9).exited(4).phases == [(0, "Running"), (9, "Failed")]


def test_real_init_containers_run_one_after_the_other() -> None:
    world = World(pod(inits=[container("one"), container("two")]), fake=False)
    assert world.commands == [StartContainer("one", 0)]
    world.started("one").exited(0, "one")
    assert world.commands[1:] == [StartContainer("two", 0)]
    assert world.last["phase"] == "Pending"
    world.started("two").exited(0, "two").started()
    assert world.last["phase"] == "Running"


def test_a_failing_init_container_fails_a_pod_that_never_restarts() -> None:
    world = World(pod(inits=[container("one")]), fake=False).started("one").exited(7, "one")
    assert world.last["phase"] == "Failed"
    assert world.commands == [StartContainer("one", 0)]


def test_a_failing_init_container_is_tried_again_otherwise() -> None:
    world = World(pod(inits=[container("one")], policy="OnFailure"), fake=False).started("one").exited(7, "one")
    assert world.last["phase"] == "Pending"
    assert world.run(1).commands[1:] == [StartContainer("one", 1)]


def test_deletion_stops_a_real_container_with_its_grace() -> None:
    subject = pod()
    world = World(subject, fake=False).started().observe(deleted(subject, grace=12))
    assert world.commands[1:] == [StopContainer("main", 12)]
    assert len(world.phases) == 1
    world.run(1).exited(143)
    assert world.life.finished
    assert world.last["phase"] == "Failed"


def test_a_deletion_that_hastens_is_passed_on() -> None:
    subject = pod()
    world = World(subject, fake=False).started().observe(deleted(subject, grace=12)).run(1)
    world.observe(deleted(subject, grace=1))
    assert world.commands[1:] == [StopContainer("main", 12), StopContainer("main", 1)]


def test_real_sidecars_are_stopped_after_the_main_containers() -> None:
    subject = pod(inits=[container("proxy", restartPolicy="Always")])
    world = World(subject, fake=False).started("proxy").started().observe(deleted(subject, grace=10))
    assert world.commands[2:] == [StopContainer("main", 10)]
    world.run(4).exited(0)
    assert world.commands[3:] == [StopContainer("proxy", 6)]
    world.exited(143, "proxy")
    assert world.last["phase"] == "Succeeded"


def test_a_container_without_anything_to_run_waits_with_the_reason() -> None:
    world = World(pod(), fake=False)
    world.life.refused("main", "CreateContainerError", "no command")
    world.run(1000)
    assert world.last["phase"] == "Pending"
    assert world.state() == {"waiting": {"reason": "CreateContainerError", "message": "no command"}}
    assert world.commands == [StartContainer("main", 0)]


def test_an_exit_that_is_reported_twice_counts_once() -> None:
    world = World(pod(policy="OnFailure"), fake=False).started().exited(1).exited(1)
    assert world.run(100).commands == [StartContainer("main", 0), StartContainer("main", 1)]
