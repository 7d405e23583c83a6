"""Usage history: decay, double charges, budgets, and restarts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cluster.accounts import AccountRecord
from phalanx.model.account import Account, AccountKey, Budget, Tree
from phalanx.scheduling.quota.usage_history import WEIGHT_SCALE, AccountUsage, UsageHistory, shifted_weights

HOUR = 3600
ROOT = AccountRecord(AccountKey(Tree.QUEUE, "root"))


def account(name: str, budget: Budget | None = None) -> AccountRecord:
    key = AccountKey(Tree.QUEUE, name)
    record = AccountRecord(key, Account(key, budget=budget))
    record.parent = ROOT
    return record


class Timeline:
    """One history and a clock in hours."""

    def __init__(self, half_life: float | None = 1, denied: bool = False) -> None:
        self.history = UsageHistory(half_life * HOUR if half_life else None, denied)

    def change(self, at: float, record: AccountRecord, held: int | None = None, asked: int | None = None) -> None:
        for amounts, value in ((record.used, held), (record.pending, asked)):
            if value is not None:
                amounts.clear()
                amounts.update({"cpu": value} if value else {})
        self.history.advance(record, at * HOUR)

    def usage(self, at: float, record: AccountRecord) -> float:
        return self.history.decayed(record, at * HOUR).get("cpu", 0.0)

    def spent(self, at: float, record: AccountRecord) -> float:
        """Return usage in milli-core-hours."""
        return self.history.spent(record, at * HOUR).get("cpu", 0) / (HOUR * 1000)


class TestFading:
    def test_decayed_usage_tends_to_the_present_usage(self) -> None:
        """A head start of four half-lives: 1 - 0.5^4 of the held amount."""
        line, early = Timeline(), account("early")
        line.change(0, early, 1000)
        assert line.usage(0, early) == 0
        assert line.usage(1, early) == pytest.approx(500)
        assert line.usage(2, early) == pytest.approx(750)
        assert line.usage(4, early) == pytest.approx(937.5)

    def test_usage_of_two_tenants_after_a_head_start_of_four_hours(self) -> None:
        line, early, late = Timeline(), account("early"), account("late")
        line.change(0, early, 1000)
        line.change(4, early, 500)
        line.change(4, late, 500)
        # 937.5 / 2 + 500 / 2 and 500 / 2; two hours later the difference has faded to a quarter.
        assert [line.usage(5, early), line.usage(5, late)] == pytest.approx([718.75, 250])
        assert line.usage(6, early) - line.usage(6, late) == pytest.approx(937.5 / 4)

    def test_decayed_usage_does_not_depend_on_the_number_of_reads(self) -> None:
        line, seldom, often = Timeline(), account("seldom"), account("often")
        for record in (seldom, often):
            line.change(0, record, 640)
        for minute in range(1, 240):
            line.usage(minute / 60, often)
        for record in (seldom, often):
            line.change(4, record, 80)
        assert line.usage(7, often) == pytest.approx(line.usage(7, seldom), rel=1e-12)

    def test_usage_fades_to_zero_after_long_idleness(self) -> None:
        line, once = Timeline(), account("once")
        line.change(0, once, 1000)
        line.change(4, once, 0)
        assert line.usage(5, once) == pytest.approx(468.75)
        assert line.usage(24 * 30, once) == 0
        assert line.history.export(24 * 30 * HOUR) == []

    def test_clock_that_runs_backwards_adds_no_usage(self) -> None:
        line, record = Timeline(), account("a")
        line.change(10, record, 1000)
        line.change(5, record, 500)
        assert line.usage(5, record) == 0
        assert line.usage(11, record) == pytest.approx(250)

    def test_clock_that_runs_backwards_charges_no_account(self) -> None:
        line, first, second = Timeline(), account("first"), account("second")
        line.change(10, first, 1000)
        line.change(5, second, 1000)
        assert line.usage(11, second) == pytest.approx(500)

    def test_without_a_half_life_there_is_no_past_usage(self) -> None:
        line, record = Timeline(half_life=None), account("a")
        line.change(0, record, 1000)
        assert line.usage(9, record) == 0

    def test_changed_half_life_counts_from_its_change_on(self) -> None:
        line, record = Timeline(), account("a")
        line.change(0, record, 1000)
        line.history.configure(2.0 * HOUR, False, 1 * HOUR)
        assert line.usage(1, record) == pytest.approx(500)
        assert line.usage(3, record) == pytest.approx(750)

    def test_account_without_pods_or_declaration_holds_nothing(self) -> None:
        line, record = Timeline(), account("a")
        line.change(0, record, 1000)
        line.history.observe_all({}, 1 * HOUR)
        assert line.usage(2, AccountRecord(record.key)) == pytest.approx(250)


class TestDenied:
    def test_usage_while_siblings_wait_counts_double(self) -> None:
        line, holder, waiter = Timeline(denied=True), account("holder"), account("waiter")
        line.change(0, holder, 1000)
        line.change(1, waiter, asked=1000)
        # The first hour counts once, the second twice: 500 / 2 + 2 * 1000 / 2.
        assert line.usage(2, holder) == pytest.approx(1250)
        line.change(2, waiter, asked=0)
        assert line.usage(3, holder) == pytest.approx(1250 / 2 + 500)
        assert line.usage(3, waiter) == 0

    def test_account_is_not_charged_double_for_its_own_waiting(self) -> None:
        line, alone = Timeline(denied=True), account("alone")
        line.change(0, alone, 1000, asked=500)
        assert line.usage(1, alone) == pytest.approx(500)

    def test_two_waiting_accounts_charge_each_other_double(self) -> None:
        line, one, two = Timeline(denied=True), account("one"), account("two")
        line.change(0, one, 600, asked=1)
        line.change(0, two, 400, asked=1)
        assert [line.usage(1, one), line.usage(1, two)] == pytest.approx([600, 400])

    def test_double_charge_does_not_depend_on_the_time_of_reads(self) -> None:
        lines = Timeline(denied=True), Timeline(denied=True)
        found = []
        for line, looks in zip(lines, (1, 50), strict=True):
            holder, waiter = account("holder"), account("waiter")
            line.change(0, holder, 1000)
            for hour in range(5):
                line.change(hour + 0.25, waiter, asked=7)
                for look in range(looks):
                    # Another change of the account makes the scheduler record its history.
                    holder.used["memory"] = look
                    line.history.advance(holder, (hour + 0.3 + look / 1000) * HOUR)
                line.change(hour + 0.5, waiter, asked=0)
            found.append(line.usage(6, holder))
        assert found[0] == pytest.approx(found[1], rel=1e-12)
        assert found[0] > 1000 * (1 - 0.5**6)

    def test_siblings_are_accounts_below_the_same_parent(self) -> None:
        line, holder, stranger = Timeline(denied=True), account("holder"), account("stranger")
        stranger.parent = holder
        line.change(0, holder, 1000)
        line.change(0, stranger, asked=1000)
        assert line.usage(1, holder) == pytest.approx(500)


NAMES = ("a", "b", "c")
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 5 * HOUR),  # seconds until then
        st.sampled_from(NAMES),
        st.integers(0, 3).map(lambda cpus: cpus * 1000),  # held amount from then on
        st.integers(0, 1),  # requested amount from then on
        st.sets(st.sampled_from(NAMES)),  # accounts read then
    ),
    max_size=30,
)


@given(CHANGES, st.booleans())
def test_reading_changed_accounts_equals_reading_all_accounts(
    changes: list[tuple[int, str, int, int, set[str]]], denied: bool
) -> None:
    """Reference: the rule applied to every account at every change."""
    line, now = Timeline(denied=denied), 0
    records = {name: account(name, TestBudgets.DAY) for name in NAMES}
    usage, spent = dict.fromkeys(NAMES, 0.0), dict.fromkeys(NAMES, 0)
    for passed, name, held, asked, looks in [*changes, (HOUR, "a", 0, 0, set())]:
        left = 0.5 ** (passed / HOUR)
        for each, record in records.items():
            others = any(other.pending for key, other in records.items() if key != each)
            amount = record.used.get("cpu", 0)
            usage[each] = usage[each] * left + amount * (1 - left) * (2 if denied and others else 1)
            day = 24 * HOUR
            if (now + passed) // day != now // day:
                spent[each] = amount * ((now + passed) % day) * 1000
            else:
                spent[each] += amount * passed * 1000
        now += passed
        line.change(now / HOUR, records[name], held, asked)
        for each in looks:
            line.usage(now / HOUR, records[each])
    for name, record in records.items():
        assert line.usage(now / HOUR, record) == pytest.approx(usage[name], abs=0.01)
        assert line.history.spent(record, now).get("cpu", 0) == spent[name]


class TestBudgets:
    DAY = Budget((("cpu", 10_000),), 24 * HOUR)

    def test_resource_hours_of_a_budget_are_exact(self) -> None:
        line, record = Timeline(half_life=None), account("a", self.DAY)
        line.change(0, record, 1500)
        line.change(2, record, 250)
        assert line.history.spent(record, 3.5 * HOUR) == {"cpu": (2 * 1500 + 250 * 3 // 2) * HOUR * 1000}

    def test_budget_window_begins_at_a_multiple_of_its_length(self) -> None:
        line, record = Timeline(half_life=None), account("a", self.DAY)
        line.change(20, record, 1000)
        assert line.spent(23, record) == 3000
        assert line.spent(24, record) == 0
        assert line.spent(26, record) == 2000
        line.change(26, record, 0)
        assert line.spent(47, record) == 2000
        assert line.spent(48, record) == 0

    def test_days_without_a_change_count_in_the_last_window_only(self) -> None:
        line, record = Timeline(half_life=None), account("a", self.DAY)
        line.change(1, record, 1000)
        assert line.spent(24 * 9 + 5, record) == 5000

    def test_resources_outside_of_the_budget_are_not_counted(self) -> None:
        line, record = Timeline(half_life=None), account("a", Budget((("memory", 1),), 24 * HOUR))
        line.change(0, record, 1000)
        assert line.history.spent(record, 9 * HOUR) == {}

    def test_larger_budget_forgives_nothing_and_another_window_restarts(self) -> None:
        line, record = Timeline(half_life=None), account("a", self.DAY)
        line.change(0, record, 1000)
        larger = account("a", Budget((("cpu", 90_000),), 24 * HOUR))
        line.change(3, larger, 1000)
        assert line.spent(4, larger) == 4000
        weekly = account("a", Budget((("cpu", 90_000),), 7 * 24 * HOUR))
        line.change(4, weekly, 1000)
        assert line.spent(6, weekly) == 2000


class TestRestart:
    def test_history_continues_after_a_restart(self) -> None:
        line, record = Timeline(), account("a", TestBudgets.DAY)
        line.change(0, record, 1000)
        line.change(3, record, 400)
        after = Timeline()
        after.history.restore(line.history.export(5 * HOUR), 5 * HOUR)
        after.history.advance(record, 5 * HOUR)
        for at in (5, 7, 26):
            assert after.usage(at, record) == line.usage(at, record)
            assert after.spent(at, record) == line.spent(at, record)

    @pytest.mark.parametrize(("before", "now", "charged"), [(1000, 400, 400), (400, 1000, 400), (400, 0, 0)])
    def test_between_two_processes_the_smaller_usage_is_charged(self, before: int, now: int, charged: int) -> None:
        line, record = Timeline(), account("a")
        line.change(0, record, before)
        after = Timeline()
        after.history.restore(line.history.export(0), 0)
        after.change(1, record, now)
        assert after.usage(1, record) == pytest.approx(charged / 2)

    def test_account_that_does_not_return_is_charged_nothing_and_forgotten(self) -> None:
        line, record = Timeline(), account("a")
        line.change(0, record, 1000)
        line.change(1, record, 600)
        after = Timeline()
        after.history.restore(line.history.export(1 * HOUR), 1 * HOUR)
        assert after.history.export(1 * HOUR) == line.history.export(1 * HOUR)
        assert after.history.export(24 * 40 * HOUR) == []

    def test_time_alone_changes_no_stored_history(self) -> None:
        line, record, idle = Timeline(), account("a", TestBudgets.DAY), account("idle")
        line.change(0, record, 1000)
        line.change(0, idle, 1000)
        line.change(1, idle, 0)
        first = line.history.export(2 * HOUR)
        line.usage(3, record)
        assert line.history.export(4 * HOUR) == first
        line.change(4, record, 900)
        changed = line.history.export(4 * HOUR)
        assert [usage.at for usage in changed if usage not in first] == [4 * HOUR * 1000]

    def test_waiting_of_siblings_survives_a_restart(self) -> None:
        line, holder, waiter = Timeline(denied=True), account("holder"), account("waiter")
        line.change(0, holder, 1000)
        line.change(0, waiter, asked=1)
        after = Timeline(denied=True)
        after.history.restore(line.history.export(1 * HOUR), 1 * HOUR)
        assert after.usage(1, holder) == pytest.approx(1000)

    def test_stored_time_in_the_future_is_read_as_now(self) -> None:
        record = account("a")
        history = UsageHistory(float(HOUR))
        history.restore([AccountUsage(record.key, 10**15, {}, {"cpu": 800.0})], 5 * HOUR)
        assert history.decayed(record, 6 * HOUR) == {"cpu": pytest.approx(400)}


class TestShiftedWeights:
    def test_weights_are_unchanged_without_history(self) -> None:
        for usages, k in (({}, 5.0), ({"a": 3.0, "b": 1.0}, 0.0)):
            shifted = shifted_weights({"a": 1, "b": 3}, usages, k)
            assert shifted["b"] == 3 * shifted["a"]

    def test_account_with_usage_above_its_share_gets_a_smaller_weight(self) -> None:
        """w' = w + k (w - u): 1/2 + 1 * (1/2 - 3/4) = 1/4, and 1/2 + 1 * (1/2 - 1/4) = 3/4."""
        shifted = shifted_weights({"a": 1, "b": 1}, {"a": 0.6, "b": 0.2}, 1.0)
        assert shifted["b"] == 3 * shifted["a"]

    def test_account_with_usage_equal_to_its_share_keeps_its_weight(self) -> None:
        shifted = shifted_weights({"a": 1, "b": 3}, {"a": 0.1, "b": 0.3}, 4.0)
        assert shifted["b"] == 3 * shifted["a"] > 0

    def test_shifted_weight_is_never_below_the_minimum(self) -> None:
        shifted = shifted_weights({"a": 1, "b": 1, "none": 0}, {"a": 0.9}, 10.0)
        assert (shifted["a"], shifted["none"]) == (1, 0)
        assert shifted["b"] > WEIGHT_SCALE

    def test_usage_of_accounts_outside_of_the_group_does_not_matter(self) -> None:
        assert shifted_weights({"a": 1}, {"a": 1.0, "stranger": 9.0}, 1.0) == shifted_weights({"a": 1}, {}, 1.0)
