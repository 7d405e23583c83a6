"""`fairshare`: namespaces and users of a queue alternate, by present and by past usage."""

from __future__ import annotations

import random

import pytest

from phalanx.model.account import AccountKey, Tree
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.plugins.queues.fairshare import surplus_weights
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.quota.usage_history import WEIGHT_SCALE

from .tenancy import HOUR, Tenancy, policy


class TestNow:
    def test_namespace_with_more_jobs_gets_no_more(self) -> None:
        """The case of the article: ten pods of user A and a thousand of user B."""
        world = Tenancy(20, policy()).submit("b", 1000).submit("a", 10).work()
        assert world.held() == {"a": 10, "b": 10}

    def test_turns_alternate_from_the_first_pod_on(self) -> None:
        world = Tenancy(6, policy()).submit("a", 9).submit("b", 9).submit("c", 9).work()
        assert [name[0] for name in world.order] == list("abcabc")

    def test_namespace_with_less_usage_is_first(self) -> None:
        world = Tenancy(8, policy()).submit("a", 6).work().submit("a", 9).submit("b", 9).work()
        assert world.held() == {"a": 6, "b": 2}

    def test_shares_of_namespaces_are_divided_by_weight(self) -> None:
        world = Tenancy(40, policy()).weigh("a", 3).submit("a", 99).submit("b", 99).work()
        assert world.held() == {"a": 30, "b": 10}

    def test_users_of_one_namespace_alternate_too(self) -> None:
        world = Tenancy(12, policy())
        world.submit("ns", 99, user="ann").submit("ns", 99, user="bob").submit("other", 99, user="eve").work()
        assert world.held() == {"ann": 3, "bob": 3, "eve": 6}

    def test_levels_of_fairshare_can_be_switched_off(self) -> None:
        world = Tenancy(12, policy(namespaces="false"))
        world.submit("ns", 99, user="ann").submit("ns", 99, user="bob").submit("other", 99, user="eve").work()
        assert world.held() == {"ann": 4, "bob": 4, "eve": 4}
        world = Tenancy(12, policy(users="false"))
        world.submit("ns", 6, user="ann").submit("ns", 99, user="bob").submit("other", 99, user="eve").work()
        assert world.held() == {"ann": 6, "eve": 6}

    def test_unused_share_of_a_namespace_is_used_by_the_remaining_ones(self) -> None:
        world = Tenancy(10, policy()).submit("a", 2).submit("b", 99).work()
        assert world.held() == {"a": 2, "b": 8}

    def test_shares_of_a_namespace_in_different_queues_are_independent(self) -> None:
        """Turns alternate within a queue: a namespace's share in another queue does not count."""
        world = Tenancy(10, policy()).queue("one").queue("two").submit("a", 6, queue="one").work()
        world.submit("a", 9, queue="two").submit("b", 9, queue="two").work()
        assert world.held() == {"a": 8, "b": 2}


class TestOverTime:
    @pytest.mark.feature("past-use")
    def test_namespace_with_much_past_usage_waits_for_one_without(self) -> None:
        """After four hours at half-life 1 h "early" has usage 0.9375; freed CPUs are used by "late"."""
        world = Tenancy(10, policy(half_life="1h")).submit("early", 10).work().wait(4)
        world.submit("early", 99).submit("late", 99).finish("early", 6).work()
        assert world.held() == {"early": 4, "late": 6}

    def test_without_a_half_life_past_usage_does_not_count(self) -> None:
        world = Tenancy(10, policy()).submit("early", 10).work().wait(4)
        world.submit("early", 99).submit("late", 99).finish("early", 6).work()
        assert world.held() == {"early": 5, "late": 5}

    @pytest.mark.feature("past-use")
    def test_past_usage_of_a_half_equals_present_usage_of_a_half(self) -> None:
        """(U + held) / 2: 10 and 0 against 0 and 10."""
        world = Tenancy(20, policy(half_life="1h")).submit("early", 10).work().wait(24)
        world.finish("early", 10).submit("early", 99).submit("late", 99).work()
        assert world.held() == {"early": 5, "late": 15}

    def test_past_usage_fades_after_long_idleness(self) -> None:
        world = Tenancy(10, policy(half_life="1h")).submit("early", 10).work().wait(4)
        world.finish("early", 10).work().wait(48)
        world.submit("early", 99).submit("late", 99).work()
        assert world.held() == {"early": 5, "late": 5}

    @pytest.mark.feature("past-use")
    def test_usage_while_other_namespaces_waited_counts_double(self) -> None:
        def after(denied: str) -> dict[str, int]:
            world = Tenancy(20, policy(half_life="1h", denied=denied))
            world.submit("quiet", 10).work().wait(2)
            # For the next two hours "loud" holds everything, and "third" waits.
            world.finish("quiet", 10).submit("loud", 20).work().submit("third", 1).work().wait(2)
            world.finish("loud", 20)
            return world.submit("quiet", 99).submit("loud", 99).work().held()

        # (15 + 3) / 2 against (1.875 + 16) / 2; charged double, 30 exceeds all that "quiet" can use.
        assert after("false") == {"loud": 3, "quiet": 16, "third": 1}
        assert after("true") == {"quiet": 19, "third": 1}

    @pytest.mark.feature("past-use")
    def test_queues_are_ordered_by_past_usage(self) -> None:
        world = Tenancy(10, policy(half_life="1h")).queue("one").queue("two")
        world.submit("a", 10, queue="one").work().wait(4).finish("a", 6)
        world.submit("a", 99, queue="one").submit("b", 99, queue="two").work()
        assert world.held() == {"a": 4, "b": 6}

    def test_equal_histories_give_equal_order(self) -> None:
        def play() -> list[str]:
            world = Tenancy(7, policy(half_life="30m", denied="true"))
            chance = random.Random(5)
            for _ in range(60):
                world.submit(chance.choice("abc"), 2, chance.uniform(60, 7200)).work()
                world.next_end()
            return world.order

        assert play() == play()


def shares(
    world: Tenancy, lengths: dict[str, tuple[float, float]], hours: float, seed: int = 1
) -> dict[str, float]:
    """Return the time-averaged CPUs of namespaces that always have more one-CPU jobs than fit, of random length."""
    chance = random.Random(seed)
    world.long = True
    until, area = world.now + hours * HOUR, dict.fromkeys(lengths, 0.0)
    for name, (least, most) in lengths.items():
        for _ in range(100):
            world.submit(name, 1, chance.uniform(least, most))
    world.work()
    while world.now < until:
        held, since = world.held(), world.now
        ended = world.next_end()
        for name in area:
            area[name] += held.get(name, 0) * (min(world.now, until) - since)
        for name in ended:
            world.submit(name, 1, chance.uniform(*lengths[name]))
        world.work()
    return {name: total / (hours * HOUR) for name, total in area.items()}


class TestAverages:
    @pytest.mark.slow
    @pytest.mark.parametrize("arguments", [{}, {"half_life": "1h"}, {"half_life": "1h", "denied": "true"}])
    def test_three_equal_namespaces_get_a_third_each(self, arguments: dict[str, object]) -> None:
        """75 CPUs, endless jobs; jobs of one tenant are short, of another long, of the third mixed."""
        lengths = {"a": (60.0, 600.0), "b": (60.0, 3600.0), "c": (1800.0, 3600.0)}
        found = shares(Tenancy(75, policy(**arguments)), lengths, hours=8)
        for name in lengths:
            assert found[name] == pytest.approx(25, rel=0.02), found

    @pytest.mark.slow
    def test_head_start_of_a_namespace_is_compensated_over_time(self) -> None:
        """ "early" used everything for four hours; over the next ones "late" gets more, until they are equal."""
        world = Tenancy(30, policy(half_life="1h"))
        shares(world, {"early": (300.0, 900.0)}, hours=4)
        lengths = {"early": (300.0, 900.0), "late": (300.0, 900.0)}
        first = shares(world, lengths, hours=2, seed=2)
        assert first["late"] > 1.3 * first["early"]
        shares(world, lengths, hours=6, seed=3)
        last = shares(world, lengths, hours=4, seed=4)
        assert last["late"] == pytest.approx(last["early"], rel=0.04)


class TestShiftedWeights:
    def weights(self, arguments: dict[str, object]) -> dict[str, int]:
        world = Tenancy(10, policy(**arguments)).queue("one", weight=1).queue("two", weight=1)
        world.submit("a", 8, queue="one").submit("b", 2, queue="two").work().wait(4)
        queues = [world.state.ledger.accounts[AccountKey(Tree.QUEUE, name)] for name in ("one", "two")]
        return {
            key.name: weight
            for key, weight in surplus_weights(world.scheduler.new_session(world.now), queues).items()
        }

    @pytest.mark.feature("past-use")
    def test_shifted_weights_favour_the_queue_with_less_past_usage(self) -> None:
        """w + k (w - u) with shares of the past 0.8 and 0.2: 0.5 + 0.5 * (0.5 - 0.8) = 0.35, and 0.65."""
        found = self.weights({"half_life": "1h", "shift": 0.5})
        assert found["one"] / found["two"] == pytest.approx(0.35 / 0.65, rel=1e-3)

    @pytest.mark.parametrize("arguments", [{}, {"shift": 3}, {"half_life": "1h"}])
    def test_weights_are_unchanged_without_a_shift_or_past_usage(self, arguments: dict[str, object]) -> None:
        assert self.weights(arguments) == {"one": WEIGHT_SCALE, "two": WEIGHT_SCALE}

    @pytest.mark.feature("past-use")
    @pytest.mark.parametrize(("shift", "held"), [(0, {"a": 6, "b": 6}), (0.5, {"a": 3, "b": 9})])
    def test_proportion_uses_shifted_weights(self, shift: float, held: dict[str, int]) -> None:
        """Queue one used everything: u = (1, 0) nearly, w' = (1/2 - 1/4, 1/2 + 1/4)."""
        text = policy(half_life="1h", shift=shift).replace(
            "{name: predicates}", "{name: proportion}, {name: predicates}"
        )
        world = Tenancy(12, text).queue("one").queue("two").submit("a", 12, queue="one").work().wait(12)
        world.finish("a", 12).submit("a", 99, queue="one").submit("b", 99, queue="two").work()
        assert world.held() == held


class TestArguments:
    def test_fairshare_arguments_without_effect_are_reported(self) -> None:
        told = load_policy(policy(denied="true", shift=1)).inactive
        assert [line for line in told if "fairshare" in line] == [
            "plugin fairshare: fairshare.denied has no effect without fairshare.half-life",
            "plugin fairshare: fairshare.shift has no effect without fairshare.half-life",
        ]

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({"half_life": "soon"}, "argument fairshare.half-life: 'soon' is not a duration above 0"),
            ({"shift": -1}, "argument fairshare.shift: -1 is not a number of at least 0"),
            ({"denied": "perhaps"}, "argument fairshare.denied: 'perhaps' is not true or false"),
            ({"halflife": "1h"}, "unknown argument 'fairshare.halflife'; did you mean 'fairshare.half-life'?"),
        ],
    )
    def test_invalid_fairshare_arguments_are_named_and_refused(
        self, arguments: dict[str, object], told: str
    ) -> None:
        with pytest.raises(PolicyError, match=told.replace("?", r"\?")):
            load_policy(policy(**arguments))
