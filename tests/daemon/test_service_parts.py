"""The parts of the scheduler process: orders that matter, times at which parts run, failures of one part."""

from __future__ import annotations

import ast
import asyncio
import base64
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phalanx.daemon import service as service_module
from phalanx.daemon.assembly.registry import service_parts
from phalanx.daemon.service import Registry, SchedulerOptions, SchedulerService
from phalanx.daemon.service_part import Runs, ServiceParts
from phalanx.daemon.service_part import ServicePart as Part
from phalanx.daemon.standby import Standby
from phalanx.dialects.core import decode_pod
from phalanx.dialects.signatures import Signer
from phalanx.dialects.warnings import ObjectRef, ObjectWarning
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.kube.failures import Failures
from phalanx.model.decisions import Plan
from phalanx.model.gang import GangKey
from phalanx.scheduling.policy.loader import load_policy
from tests.daemon.test_signing_keys import FakeSecrets
from tests.test_layers import imported_modules

POD = decode_pod(b'{"metadata": {"name": "p", "namespace": "ns", "uid": "p"}, "spec": {"containers": []}}')
GANG = GangKey("ns", "g")
WARNING = ObjectWarning(ObjectRef("v1", "Pod", "ns", "p", "p"), "Warning", "Test", "a warning")


def service(registry: Registry = service_parts, **options: Any) -> SchedulerService:
    return SchedulerService(
        KubeClient(ClusterConfig("http://127.0.0.1:1")), SchedulerOptions(**options), registry=registry
    )


def parts_with(hook: str) -> list[str]:
    """Return the names of the registered parts that have a hook, in the order in which they are called."""
    registered = service_parts(service(self_check=True).assembly)
    return [part.name for part in registered if getattr(part, hook) is not None]


class TestOrdersThatMatter:
    async def test_nominations_usage_promises_and_defragmentation_are_loaded_in_this_order(self) -> None:
        expected = ["nominations", "usage record", "promised starts", "defragmentation"]
        assert parts_with("load")[:4] == expected

    @pytest.mark.parametrize("hook", ["pod_seen", "pod_gone"])
    async def test_executor_sees_a_pod_before_telemetry(self, hook: str) -> None:
        names = parts_with(hook)
        assert names.index("executor") < names.index("telemetry")

    async def test_scheduler_uses_a_policy_before_pods_are_reread_under_it(self) -> None:
        assert parts_with("policy_changed") == ["scheduler", "run-time limits"]

    async def test_everything_that_a_plan_rests_on_is_saved(self) -> None:
        assert parts_with("save") == ["usage record", "promised starts", "defragmentation", "recent history"]

    async def test_state_is_saved_before_a_plan_is_carried_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[str] = []

        async def load() -> None:
            calls.append("load")

        def registry(built: object) -> list[Part]:
            return [Part("probe", load=load, save=lambda last: calls.append("save"))]

        def carry_out(plan: Plan) -> None:
            calls.append("carry out")

        running = service(registry)
        monkeypatch.setattr(running.assembly.execution.executor, "carry_out", carry_out)
        await running.assembly.core.parts.load()
        running._cycle()
        assert calls == ["load", "save", "carry out"]

    async def test_nothing_is_saved_before_everything_is_loaded(self) -> None:
        saved: list[bool] = []
        parts = ServiceParts(Failures())
        parts.use([Part("probe", save=saved.append)])
        parts.save(last=True)
        assert saved == []
        await parts.load()
        parts.save()
        parts.save(last=True)
        assert saved == [False, True]

    @pytest.mark.parametrize("patience", [10.0, 0.0], ids=["leader", "standby"])
    async def test_signing_keys_are_in_use_before_the_first_pod_is_read(self, patience: float) -> None:
        secrets: Any = FakeSecrets({"data": {"1000": base64.b64encode(b"k" * 32).decode()}})
        signer, signed = Signer(), []
        await leads(secrets, signer, patience, observe=lambda: signed.append(signer.sign("a plan mark")))
        assert len(signed) == 1
        assert signer.believes(signed[0], "a plan mark")


async def leads(secrets: Any, signer: Signer, patience: float, observe: Callable[[], None]) -> None:
    """Wait for a lease that is acquired at once, or after `patience` where that is 0."""

    class Leadership:
        line = "a test waits"

        async def acquired(self) -> None:
            await asyncio.sleep(0 if patience else 0.05)

    class Observer:
        async def synced(self) -> None: ...

        def list_again(self, *, redeliver: bool) -> None: ...

    leadership: Any = Leadership()
    observer: Any = Observer()
    scheduler = service().scheduler
    await Standby(secrets, "kube-system", leadership, observer, scheduler, signer, patience=patience).leads(observe)


def raises(*arguments: object) -> Any:
    raise LookupError("a bug of a part")


CALLS: dict[str, Callable[[ServiceParts], object]] = {
    "pod_seen": lambda parts: parts.pod_seen(POD),
    "pod_gone": lambda parts: parts.pod_gone("p"),
    "gang_touched": lambda parts: parts.gang_touched(GANG),
    "verdict_published": lambda parts: parts.verdict_published(GANG),
    "check": lambda parts: parts.check(),
    "save": lambda parts: parts.save(),
    "warnings": lambda parts: parts.warnings(),
    "bind_warnings": lambda parts: parts.bind_warnings(()),
    "lease_lost": lambda parts: parts.lease_lost(),
    "drain": lambda parts: parts.drain(),
}


class TestFailures:
    @pytest.mark.parametrize("hook", CALLS)
    async def test_part_that_raises_harms_only_itself(self, hook: str, caplog: pytest.LogCaptureFixture) -> None:
        called, counted = [], Counter[str]()

        def works(*arguments: object) -> list[ObjectWarning]:
            called.append(hook)
            return [WARNING]

        good: dict[str, Any] = {hook: works}
        bad: dict[str, Any] = {hook: raises}
        parts = ServiceParts(Failures(lambda label: counted.update([label])))
        await parts.load()
        parts.use([Part("first", **good), Part("broken", **bad), Part("last", **good)])
        for _ in range(2):
            result = CALLS[hook](parts)
        assert called == [hook] * 4
        assert result == ([WARNING] * 2 if "warnings" in hook else None)
        assert counted.total() == 2
        assert len([record for record in caplog.records if "broken" in record.getMessage()]) == 1

    async def test_part_that_cannot_load_ends_the_start(self) -> None:
        async def load() -> None:
            raises()

        parts = ServiceParts(Failures())
        parts.use([Part("broken", load=load)])
        with pytest.raises(LookupError):
            await parts.load()

    async def test_part_that_cannot_use_a_policy_rejects_it(self) -> None:
        parts = ServiceParts(Failures())
        parts.use([Part("broken", policy_changed=raises)])
        with pytest.raises(LookupError):
            parts.policy_changed(load_policy())

    async def test_two_parts_of_one_name_are_refused(self) -> None:
        with pytest.raises(ValueError, match="same name"):
            ServiceParts(Failures()).use([Part("probe"), Part("probe")])


class TestLoop:
    def test_loop_imports_no_feature(self) -> None:
        features = ("controllers", "status", "execution", "dialects", "cluster", "scheduling", "metrics")
        imported = {name.partition("phalanx.")[2] for name in imported_modules(Path(service_module.__file__))}
        assert not {name for name in imported if set(name.split(".")) & set(features)}

    def test_construction_of_the_service_has_at_most_40_statements(self) -> None:
        tree = ast.parse(textwrap.dedent(inspect.getsource(SchedulerService.__init__)))
        assert sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) <= 40


class TestTasks:
    @pytest.mark.parametrize("runs", Runs)
    async def test_task_starts_with_its_time_only(self, runs: Runs) -> None:
        started: list[Runs] = []

        def task_of(mine: Runs) -> Part:
            async def run() -> None:
                started.append(mine)

            return Part(mine.value, mine, run=run)

        parts = ServiceParts(Failures())
        parts.use([task_of(each) for each in Runs])
        async with asyncio.TaskGroup() as tasks:
            parts.start(runs, tasks)
        assert started == [runs]

    async def test_failure_of_a_vital_task_ends_the_process(self) -> None:
        async def run() -> None:
            raises()

        parts = ServiceParts(Failures())
        parts.use([Part("broken", Runs.ALWAYS, run=run, vital=True)])
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as tasks:
                parts.start(Runs.ALWAYS, tasks)
