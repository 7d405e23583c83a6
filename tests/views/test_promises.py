"""The set of promised starts that all views share, and where dry runs move them."""

from __future__ import annotations

import re

import msgspec
import pytest

from phalanx.cli.accounts.queue_tables import describe_queue, queue_table
from phalanx.cli.jobs.starts import start_lines
from phalanx.cli.top.gangs import start as shown_start
from phalanx.cluster.state import ClusterState
from phalanx.dashboard.rows.entries import GangRow
from phalanx.dialects.intake import Intake
from phalanx.model.gang import owned_name
from phalanx.model.pod import PodClass
from phalanx.model.promise_records import StoredReservation, encode
from phalanx.model.run_time import RunTime
from phalanx.model.text.moments import shown_moment
from phalanx.reports.queue_report import report
from phalanx.reports.snapshot import Snapshot
from phalanx.reports.start_times import start_entries
from phalanx.reports.why import WhyReport
from phalanx.reports.why_answer import WhyAnswer
from phalanx.scheduling.start_reservations.plugin import StartReservations
from phalanx.scheduling.whatif.relocation_proof import ClusterFacts
from phalanx.views.gang_state import GangState
from phalanx.views.promise_record import DATA_KEY, WRITTEN_KEY, encode_written, promises_of
from phalanx.views.promises import PromisedStart, PromiseOrigin, Promises, PromiseSource, live_promises
from tests.scheduling.scenario import Scenario
from tests.views.situations import G
from tests.views.test_situations import RESERVE

pytestmark = pytest.mark.feature("start-reservations")


def promised() -> tuple[Scenario, Promises]:
    """A node of 4 CPU is busy until 1100 (and 30 s of grace); gang g has a promised start then."""
    world = Scenario(RESERVE).node("n", cpu=4)
    limited = {"run_time": RunTime(100), "started": 1000, "bound": 1000}
    world.pod("busy", node="n", cpu=2, pod_class=PodClass(run_limit=100), more=limited)
    world.job("g", 3, cpu=1, pod_class=PodClass(run_limit=50), more={"run_time": RunTime(50)}).settle()
    live = live_promises(world.scheduler.features.get(StartReservations))
    origin = PromiseOrigin(PromiseSource.STORED, "7", shown_moment(world.now))
    return world, Promises(live.promises, origin=origin)


def snapshot(world: Scenario) -> Snapshot:
    made = Snapshot(ClusterState(), Intake(("phalanx",)))
    made.apply_events(world.events)
    return made


def why(world: Scenario, promises: Promises) -> WhyAnswer:
    made = WhyReport(snapshot(world), world.policy, float(world.now), promises)
    answer = made.gang(G)
    assert answer is not None
    answer.start = made.start(G)
    return answer


def test_live_promises_have_the_number_of_the_plan_and_the_time_of_its_publication() -> None:
    world, _ = promised()
    feature = world.scheduler.features.get(StartReservations)
    assert feature is not None
    live = live_promises(feature)
    assert live.origin == PromiseOrigin(PromiseSource.LIVE, str(feature.promised()[0]), shown_moment(world.now))
    assert [promise.key for promise in live.promises] == [(G,)]


def test_dry_run_that_moves_no_promise_shows_it_as_it_was_published() -> None:
    world, promises = promised()
    start = why(world, promises).start
    assert start == promises.start(promises.promises[0])
    assert start is not None
    assert start.no_later_than == shown_moment(promises.promises[0].told)
    assert start.origin == promises.origin


def test_dry_run_says_to_where_a_unit_of_higher_priority_moves_a_promise() -> None:
    world, promises = promised()
    told = promises.promises[0].told
    world.now += 5
    world.pod("vip", cpu=2, priority=9, pod_class=PodClass(run_limit=500), more={"run_time": RunTime(500)})
    answer = why(world, promises)
    assert answer.start is not None
    moved = (answer.start.no_later_than, answer.start.moves_because)
    assert moved == (shown_moment(told), "Displaced")
    assert answer.start.moves_to > shown_moment(told)
    # The verdict's sentence contains the promise, which is not broken yet.
    assert f"t starts no later than {shown_moment(told)}," in answer.message
    lines = start_lines(answer.start, world.now)
    assert any(
        re.fullmatch(r"  a dry run moves it from in .* \(00:18:50\) to in .* \(.*\): Displaced", line)
        for line in lines
    )

    (entry,) = (
        entry
        for entry in start_entries(snapshot(world), world.policy, promises, float(world.now))
        if entry.name == "g"
    )
    assert entry.start == answer.start


def test_dry_run_that_finds_no_start_any_more_says_that_the_promise_is_given_up() -> None:
    world, promises = promised()
    world.no_node("n").node("small", cpu=1)
    answer = why(world, promises)
    assert answer.start is not None
    assert (answer.start.moves_to, answer.start.moves_because) == ("", "NodeLost")
    assert "  a dry run drops it: NodeLost" in start_lines(answer.start, world.now)


def test_start_that_only_a_dry_run_reserves_is_not_called_promised() -> None:
    world, promises = promised()
    answer = why(world, Promises())
    told = shown_moment(promises.promises[0].told)
    assert f"o start is promised; a dry run reserves one at {told}" in answer.message
    assert answer.start is not None
    assert (answer.start.no_later_than, answer.start.planned, answer.start.origin) == ("", told, None)


def test_facts_of_a_relocation_leave_promised_room_to_the_promise() -> None:
    world, promises = promised()
    world.pod("endless", cpu=2)

    def placed(known: tuple[StoredReservation, ...]) -> bool:
        facts = ClusterFacts(world.events, world.policy, float(world.now), promises=known)
        return bool(facts.build().state.pods["endless"].assumed_node)

    assert placed(())
    assert not placed(promises.promises)


def test_queue_shows_the_promised_start_of_its_first_waiting_gang() -> None:
    world, promises = promised()
    found = report(snapshot(world), world.policy, float(world.now), promises)
    (queue,) = (queue for queue in found.queues if queue.name == "default")
    assert queue.first is not None
    assert queue.first.start == promises.start(promises.promises[0])
    clock = queue.first.start.no_later_than[11:19]
    row = next(line for line in queue_table(found, wide=False, now=world.now) if line.startswith("default"))
    assert f"({clock})" in row
    assert any(f"({clock})" in line for line in describe_queue(queue, world.now))


def test_object_of_one_name_and_another_uid_has_no_promise() -> None:
    _, promises = promised()
    assert promises.of_gang(G.namespace, G.name, "") is promises.promises[0]
    assert promises.of_gang(G.namespace, G.name, "another") is None


def test_gang_that_an_owner_names_is_found_by_the_uid_of_the_owner() -> None:
    name = owned_name("RayJob", "train", "uid-1")
    promise = promise_of(gangs=[("ns", f"{name}/head", "")])
    promises = Promises((promise,))
    assert promises.of_owner("ns", "uid-1") is promise
    assert promises.of_owner("ns", "uid-2") is None
    assert promises.of_owner("ns", "") is None


@pytest.mark.parametrize(
    ("source", "now", "warns"),
    [
        (PromiseSource.STORED, 2060, False),
        (PromiseSource.STORED, 2200, True),
        (PromiseSource.LIVE, 2200, False),
    ],
)
def test_record_is_reported_as_old_once_a_promised_start_has_passed(
    source: PromiseSource, now: int, warns: bool
) -> None:
    promises = Promises((promise_of(pod="uid"),), origin=PromiseOrigin(source, "7", shown_moment(1500)))
    found = promises.warnings(now)
    assert bool(found) is warns
    if warns:
        assert "1 promised start has passed" in found[0]
        assert f"written at {shown_moment(1500)}" in found[0]


def test_record_says_its_version_and_when_it_was_written() -> None:
    promise = promise_of(pod="uid", name="ns/p")
    data = {DATA_KEY: encode([promise]), WRITTEN_KEY: encode_written(1500.7, 12)}
    found = promises_of({"metadata": {"name": "r", "namespace": "ns", "resourceVersion": "31"}, "data": data})
    assert found.promises == (promise,)
    assert found.origin == PromiseOrigin(PromiseSource.STORED, "31", shown_moment(1500))
    assert found.warning == ""


@pytest.mark.parametrize("written", ["", "7", "{}", '{"time": "soon", "plan": 1}', '{"time": 0, "plan": 1}', "{"])
def test_record_without_a_readable_time_has_none(written: str) -> None:
    data = {DATA_KEY: encode([]), WRITTEN_KEY: written}
    found = promises_of({"metadata": {"resourceVersion": "31"}, "data": data})
    assert (found.origin.time, found.warning) == ("", "")


def test_promise_without_times_is_omitted_with_a_warning() -> None:
    good, bad = promise_of(pod="good"), promise_of(pod="bad", told=0)
    found = promises_of({"metadata": {"name": "r", "namespace": "ns"}, "data": {DATA_KEY: encode([bad, good])}})
    assert found.promises == (good,)
    assert "configmap ns/r, promised starts: reservations[0] is forgotten" in found.warning


def promise_of(**fields: object) -> StoredReservation:
    made = StoredReservation(2000, 2100, 2000, 2000, 1000, [])
    return msgspec.structs.replace(made, **fields)


def test_views_call_a_promised_start_that_has_passed_overdue() -> None:
    start = PromisedStart(no_later_than="2026-11-28T08:00:00Z", promised="2026-11-28T08:00:00Z", basis="beside it")
    due = 1795852800
    assert start_lines(start, due)[0] == "Starts: no later than now (08:00:00)"
    assert start_lines(start, due + 1200)[0] == "Starts: overdue, 20 min ago (08:00:00)"


def test_top_calls_a_promised_start_that_has_passed_overdue() -> None:
    promised = GangRow(
        id="ns/g",
        kind="gang",
        namespace="ns",
        name="g",
        state=GangState.PENDING,
        start="1970-01-01T00:20:00Z",
        start_kind="promised",
    )
    planned = GangRow(
        id="ns/g",
        kind="gang",
        namespace="ns",
        name="g",
        state=GangState.PENDING,
        start="1970-01-01T00:20:00Z",
        start_kind="planned",
    )
    assert [shown_start(promised, now) for now in (1080, 1200.9, 1201)] == ["<= 2m", "<= 0s", "overdue"]
    assert shown_start(planned, 1201) == "~ 0s"
