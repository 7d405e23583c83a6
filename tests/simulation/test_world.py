"""Virtual time: jobs arrive, wait, run and end, under all events."""

from __future__ import annotations

from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.events import AccountUpdated
from phalanx.simulation.event_queue import EventOrder, EventQueue

from .worlds import EVICTING, START, history, job, nodes, story, world


def test_a_job_starts_when_there_is_room_and_ends_when_it_is_done() -> None:
    made = world([job("a", cpu=3), job("b", submit=10, cpu=3, run=50)], nodes(1))
    made.run()
    assert story(made) == {"a": (0, 100, "done"), "b": (100, 150, "done")}


def test_job_that_ends_frees_its_room_for_an_arrival_of_the_same_moment() -> None:
    made = world([job("a", cpu=4, run=100), job("b", submit=100, cpu=4)], nodes(1))
    made.run()
    assert story(made)["b"] == (100, 200, "done")


def test_events_of_one_moment_have_a_fixed_order_whenever_they_were_added() -> None:
    queue, seen = EventQueue(), list[str]()
    for order in (
        EventOrder.TIMER,
        EventOrder.SUBMIT,
        EventOrder.NODE,
        EventOrder.END,
        EventOrder.POLICY,
        EventOrder.START,
    ):
        queue.add(5, order, lambda order=order: seen.append(order.name))  # type: ignore[misc]
    queue.add(4, EventOrder.TIMER, lambda: seen.append("earlier"))
    queue.add(5, EventOrder.END, lambda: seen.append("END, added last"))
    for happening in queue.due(5):
        happening()
    assert seen == ["earlier", "END", "END, added last", "START", "NODE", "POLICY", "SUBMIT", "TIMER"]


def test_a_gang_starts_whole_or_not_at_all() -> None:
    made = world([job("small", cpu=2, run=30), job("gang", submit=1, pods=4, cpu=2)], nodes(2))
    made.run()
    assert story(made)["gang"] == (30, 130, "done")
    assert made.binds == 5


def test_time_limit_kills_longer_jobs() -> None:
    made = world([job("long", run=500, limit=60), job("short", run=50, limit=60)], nodes(1))
    made.run()
    assert story(made) == {"long": (0, 60, "killed"), "short": (0, 50, "done")}
    assert history(made, "long").useful == 0
    assert history(made, "long").ran == 60


def test_a_job_without_an_end_runs_as_long_as_is_looked_at() -> None:
    made = world([job("service", run=None), job("job", run=10)], nodes(1))
    made.run(START + 1000)
    assert story(made) == {"service": (0, None, "running"), "job": (0, 10, "done")}
    assert made.now == START + 1000


def test_job_that_never_fits_waits_until_the_end_with_a_reason() -> None:
    made = world([job("huge", cpu=400)], nodes(2))
    made.run()
    assert story(made) == {"huge": (None, None, "waiting")}
    assert "cpu" in history(made, "huge").why


def test_pods_start_with_a_delay_and_occupy_their_node() -> None:
    made = world([job("a", cpu=4), job("b", cpu=4)], nodes(1), delay=7)
    made.run()
    assert story(made) == {"a": (0, 107, "done"), "b": (107, 214, "done")}


def test_gang_on_a_lost_node_fails_and_starts_again() -> None:
    made = world([job("gang", pods=4, cpu=2, run=100)], nodes(3))
    made.lose_node(START + 40, "n0", None)
    made.run()
    told = history(made, "gang")
    assert story(made)["gang"] == (0, 140, "done")
    assert (told.restarts, told.lost) == (1, 2)
    assert told.ran == 4 * 40 + 4 * 100
    assert told.useful == 4 * 100


def test_a_node_that_returns_is_used_again() -> None:
    made = world([job("gang", pods=2, cpu=4, run=100)], nodes(2))
    made.lose_node(START + 40, "n0", 30)
    made.run()
    assert story(made)["gang"] == (0, 170, "done")
    assert made.capacity.total(made.now)["cpu"] == 8000 * 170 - 4000 * 30


def test_work_that_was_saved_is_not_done_twice() -> None:
    made = world([job("gang", pods=2, cpu=4, run=100, checkpoint=15)], nodes(2))
    made.lose_node(START + 40, "n0", 10)
    made.run()
    # 30 of 100 seconds were saved at the moment of the loss.
    assert story(made)["gang"] == (0, 50 + 70, "done")
    assert history(made, "gang").useful == 2 * 100


def test_elastic_gang_continues_above_its_quorum() -> None:
    made = world([job("gang", pods=4, minimum=2, cpu=4, run=100)], nodes(4))
    made.lose_node(START + 40, "n0", None)
    made.run()
    told = history(made, "gang")
    assert told.restarts == 0
    # The lost member runs again when another has left its node.
    assert story(made)["gang"] == (0, 200, "done")


def test_evicted_job_ends_after_its_grace_and_starts_again() -> None:
    low, high = job("low", cpu=4, run=100, grace=20), job("high", submit=30, cpu=4, run=10, priority=5)
    made = world([low, high], nodes(1), EVICTING)
    made.run()
    assert story(made) == {"low": (0, 160, "done"), "high": (50, 60, "done")}
    assert (made.evictions, history(made, "low").evicted) == (1, 1)


def test_queue_with_a_raised_limit_starts_more_jobs() -> None:
    def ceiling(cpu: int) -> AccountUpdated:
        key = AccountKey(Tree.QUEUE, "team")
        return AccountUpdated(Account(key, label="queue team", capability=(("cpu", cpu * 1000),)))

    policy = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}, {name: predicates}, {name: proportion}]}]\n'
    jobs = [job(f"j{number}", cpu=2, queue="team") for number in range(2)]
    made = world(jobs, [*nodes(1), ceiling(2)], policy)
    made.at(START + 25, EventOrder.POLICY, lambda: [ceiling(4)])
    made.run()
    assert story(made) == {"j0": (0, 100, "done"), "j1": (25, 125, "done")}


def test_integrals_count_usage_to_the_second() -> None:
    made = world([job("a", cpu=3, run=100), job("b", submit=50, cpu=1, run=100)], nodes(1))
    made.run()
    assert made.used.total(made.now)["cpu"] == 3000 * 100 + 1000 * 100
    assert made.capacity.total(made.now)["cpu"] == 4000 * 150
    assert made.held == {"default": 0}
    assert made.pod_events == 6


def test_repeated_run_is_equal() -> None:
    def once() -> list[object]:
        jobs = [job(f"j{n}", submit=n * 7 % 50, cpu=1 + n % 4, pods=1 + n % 3, run=20 + n) for n in range(60)]
        made = world(jobs, nodes(3))
        made.lose_node(START + 60, "n1", 45)
        made.run()
        return [*made.histories, made.cycles, made.used.sums]

    assert once() == once()
