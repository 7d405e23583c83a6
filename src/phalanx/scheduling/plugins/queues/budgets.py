"""Plugin `budgets`: an account that has spent its budget in a window gets no new pods before the next window.

The plugin is active in every policy: the budget is declared on the account.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.account_objects import account_objects
from phalanx.model.account import Budget
from phalanx.model.text.duration import format_duration, format_moment
from phalanx.model.text.quantity import format_quantity
from phalanx.plugin import AccountRecord, ChargePath, GangRecord, Plugin, PodRecord, Verdict, View
from phalanx.scheduling.quota.usage_history import MILLISECONDS_PER_HOUR

BUDGET_SPENT = "BudgetSpent"


class Budgets(Plugin):
    """Block new pods while an account on their charge path has no budget left. Running pods continue and are
    charged.
    """

    name = "budgets"

    def blocked(self, session: View, unit: GangRecord | PodRecord, charge_path: ChargePath) -> Verdict | None:
        if not session.state.ledger.budgeted:
            return None
        for account, budget, resource, cap, spent in _overdrawn(session, charge_path):
            session.history.note_spent(account.key)
            end = format_moment(window_end(session.now, budget))
            # Amounts are rounded to tenths of the budget, so that the message does not change with every charge of
            # running pods.
            used = 0 if not cap else cap * (10 * spent // (cap * MILLISECONDS_PER_HOUR)) // 10
            return Verdict(
                BUDGET_SPENT,
                f"{account.label} has used {format_quantity(used, resource)} of {format_quantity(cap, resource)} "
                f"{resource} hours of its budget for {format_duration(budget.window)}; "
                f"the next window starts at {end}",
                unschedulable=False,
                change=f"wait until {end}, or raise the budget of {account.label}",
                objects=account_objects(account),
            )
        return None

    def recheck_at(self, session: View, unit: GangRecord | PodRecord, charge_path: ChargePath) -> float | None:
        """Return the end of the last window whose budget is spent."""
        ends = [window_end(session.now, budget) for _, budget, _, _, _ in _overdrawn(session, charge_path)]
        return float(max(ends)) if ends else None


def _overdrawn(session: View, charge_path: ChargePath) -> Iterator[tuple[AccountRecord, Budget, str, int, int]]:
    """Yield (account, budget, resource, cap in the resource's units, spent in units x milliseconds), leaf first."""
    for account in charge_path.path if session.state.ledger.budgeted else ():
        budget = account.spec.budget if account.spec is not None else None
        if budget is not None:
            spending = session.history.spent(account, session.now)
            for resource, cap in budget.hours:
                spent = spending.get(resource, 0)
                if spent >= cap * MILLISECONDS_PER_HOUR:
                    yield account, budget, resource, cap, spent


def window_end(now: float, budget: Budget) -> int:
    """Return the end of the window that contains `now`, in seconds since the epoch."""
    return (int(now) // budget.window + 1) * budget.window
