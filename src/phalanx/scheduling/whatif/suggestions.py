"""Smallest changes after which victims are found for a waiting gang or pod: each is tried before it is
suggested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.model.account import Account, Tree, limits_of
from phalanx.model.events import AccountUpdated, ClusterEvent, GangUpdated, PodUpdated
from phalanx.model.text.duration import format_moment
from phalanx.model.text.quantity import format_quantity
from phalanx.scheduling.framework.eviction_options import EvictionOptions
from phalanx.scheduling.preemption.preemptor import Preemptor
from phalanx.scheduling.preemption.rules.rule import future_holdings
from phalanx.scheduling.preemption.solution import Eviction
from phalanx.scheduling.preemption.solver import Solver
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.whatif.what_if import WhatIf

_MOST_SUGGESTIONS = 3
_NAMED = 3
# Quota trees with quotas that state their own share.
_QUOTAS = (Tree.ELASTIC_QUOTA, Tree.KOORDINATOR, Tree.ACK)
_replace = msgspec.structs.replace


class ChangedWorld:
    """Hypothetical cluster: `now` in seconds since the epoch, the preemptor's priority, the policy's options, and
    objects.

    `changes` are events, each with the event that undoes it.
    """

    def __init__(self, now: float, options: EvictionOptions) -> None:
        self.now = now
        self.options = options
        self.priority: int | None = None
        self.preempts = False
        self.changes: list[tuple[ClusterEvent, ClusterEvent]] = []


class Suggestion(msgspec.Struct, frozen=True):
    """Change to suggest as an imperative `text`; `apply_to` applies it to a hypothetical cluster."""

    text: str
    apply_to: Callable[[ChangedWorld], None]


class Suggestions:
    """Trial of suggested changes for one waiting gang or pod.

    `look` returns a session at a time, `build` the preemptor in it. After each trial the cluster is restored,
    except for its versions.
    """

    def __init__(
        self, look: Callable[[float], Session], build: Callable[[Session], Preemptor | None], session: Session
    ) -> None:
        self._look = look
        self._build = build
        self._session = session

    def helpful_changes(self, preemptor: Preemptor, what_if: WhatIf) -> list[str]:
        """Return up to three changes that each help; else the smallest combination as one text; else none."""
        suggestions = list(_suggestions(self._session, preemptor, what_if))
        single = [suggestion.text for suggestion in suggestions if self._helps([suggestion])]
        if single:
            return single[:_MOST_SUGGESTIONS]
        if len(suggestions) < 2 or not self._helps(suggestions):
            return []
        needed = suggestions
        for suggestion in reversed(suggestions):
            remaining = [candidate for candidate in needed if candidate is not suggestion]
            if remaining and self._helps(remaining):
                needed = remaining
        return [", and ".join(suggestion.text for suggestion in needed)]

    def _helps(self, suggestions: Sequence[Suggestion]) -> bool:
        state = self._session.state
        world = ChangedWorld(self._session.now, self._session.plugin_runtime.policy.eviction)
        for suggestion in suggestions:
            suggestion.apply_to(world)
        for would_be, _ in world.changes:
            state.apply(would_be)
        try:
            return self._search(world)
        finally:
            for _, is_now in reversed(world.changes):
                state.apply(is_now)

    def _search(self, world: ChangedWorld) -> bool:
        session = self._look(world.now)
        preemptor = self._build(session)
        if preemptor is None:
            return False
        if world.priority is not None:
            preemptor.priority = world.priority
        preemptor.preempts = preemptor.preempts or world.preempts
        result = Solver(session, preemptor, world.options, session.evictions).solve()
        return isinstance(result, Eviction)


def _suggestions(session: Session, preemptor: Preemptor, what_if: WhatIf) -> Iterator[Suggestion]:
    """Yield changes of the policy or of objects that could help the preemptor, the cheapest first."""
    if what_if.eviction is None:
        return
    eviction = what_if.eviction
    records = [*(record for victim in eviction.victims for record in victim.records), *eviction.displaced]
    if preemptor.barred_by:
        yield Suggestion(f"set phalanx.queues.{preemptor.barred_by}.preempt: true in the policy", _let_it_preempt)
    elif not preemptor.preempts:
        yield Suggestion("use a priority class with preemptionPolicy PreemptLowerPriority", _let_it_preempt)
    yield from _wait_for_time(what_if)
    yield from _raise_priority(session, preemptor, records)
    yield from _raise_share(session, preemptor)
    yield from _make_reclaimable(records)
    yield from _change_policy(session)
    yield from _make_preemptable(session, records)


def _let_it_preempt(world: ChangedWorld) -> None:
    world.preempts = True


def _wait_for_time(what_if: WhatIf) -> Iterator[Suggestion]:
    times = [obstacle.until for obstacle in what_if.obstacles if obstacle.until is not None]
    if not times:
        return
    last = max(times)
    moment = int(-(-last // 1))

    def wait(world: ChangedWorld) -> None:
        world.now = float(moment)

    obstacle = next(candidate for candidate in what_if.obstacles if candidate.until == last)
    why = obstacle.why
    if why.startswith("each "):
        why = f"{named(obstacle.records)} {why if len(obstacle.records) > 1 else why.removeprefix('each ')}"
    yield Suggestion(f"wait until {format_moment(moment)} ({why})", wait)


def _raise_priority(session: Session, preemptor: Preemptor, records: Sequence[PodRecord]) -> Iterator[Suggestion]:
    highest = max((session.victim_priority(record.gang, record.pod.priority) for record in records), default=0)
    if highest < preemptor.priority:
        return

    def raise_it(world: ChangedWorld) -> None:
        world.priority = highest + 1

    yield Suggestion(f"raise its priority above {highest}", raise_it)


def _raise_share(session: Session, preemptor: Preemptor) -> Iterator[Suggestion]:
    """Yield larger shares of the preemptor's own queue with which it could reclaim."""
    declares = bool(session.plugin_runtime.plugins("declared_resources"))
    for charge_path, wanted in preemptor.charge_paths.items():
        for account in charge_path.path:
            spec = account.spec
            own = account.key.tree in _QUOTAS or (declares and account is charge_path.queue)
            if spec is None or spec.deserved is None or not own:
                continue
            holding, share, shared = (
                future_holdings(account),
                dict(spec.deserved),
                _shared(session, account.key.tree),
            )
            lacks = {
                name: holding.get(name, 0) + amount - share.get(name, 0)
                for name, amount in wanted.items()
                if name in shared and holding.get(name, 0) + amount > share.get(name, 0)
            }
            if lacks:
                yield _share_suggestion(account, spec, lacks)


def _shared(session: Session, tree: Tree) -> set[str]:
    """Return the resources of which any queue or quota in trees of the kind has a share."""
    specs = (account.spec for key, account in session.ledger.accounts.items() if key.tree is tree)
    return {name for spec in specs if spec is not None for name, _ in spec.deserved or ()}


def _share_suggestion(account: AccountRecord, spec: Account, lacks: dict[str, int]) -> Suggestion:
    share = dict(spec.deserved or ())
    changed = _replace(
        spec, deserved=limits_of(share | {name: share.get(name, 0) + n for name, n in lacks.items()})
    )
    field = "deserved" if account.key.tree is Tree.QUEUE else "min"
    amounts = " and ".join(f"{format_quantity(amount, name)} {name}" for name, amount in sorted(lacks.items()))

    def own(world: ChangedWorld) -> None:
        world.changes.append((AccountUpdated(changed), AccountUpdated(spec)))

    return Suggestion(f"raise the {field} of {account.label} by {amounts}", own)


def _make_reclaimable(records: Sequence[PodRecord]) -> Iterator[Suggestion]:
    """Yield the change that makes queues reclaimable."""
    unreclaimable: dict[AccountRecord, Account] = {}
    for record in records:
        for account in record.charge_path.path if record.charge_path is not None else ():
            if account.spec is not None and not account.spec.reclaimable and account.parent is not None:
                unreclaimable[account] = account.spec

    def release(world: ChangedWorld) -> None:
        for spec in unreclaimable.values():
            world.changes.append((AccountUpdated(_replace(spec, reclaimable=True)), AccountUpdated(spec)))

    if unreclaimable:
        yield Suggestion(
            f"make {', '.join(sorted(account.label for account in unreclaimable))} reclaimable", release
        )


def _change_policy(session: Session) -> Iterator[Suggestion]:
    now = session.plugin_runtime.policy.eviction
    one_node = now.preempt_on_single_node or now.reclaim_on_single_node
    whole = now.preempt_whole_gangs and now.reclaim_whole_gangs
    if not now.preempt:
        yield Suggestion("add the action preempt to the policy", _switching(preempt=True))
    if not now.reclaim:
        yield Suggestion("add the action reclaim to the policy", _switching(reclaim=True))
    if one_node:
        switch = _switching(preempt_on_single_node=False, reclaim_on_single_node=False)
        yield Suggestion("remove singleNodePreemption from the policy", switch)
    if not whole:
        switch = _switching(preempt_whole_gangs=True, reclaim_whole_gangs=True)
        yield Suggestion("remove allowWholeBundle: false from the policy", switch)


def _switching(**changes: bool) -> Callable[[ChangedWorld], None]:
    def switch(world: ChangedWorld) -> None:
        world.options = _replace(world.options, **changes)

    return switch


def _make_preemptable(session: Session, records: Sequence[PodRecord]) -> Iterator[Suggestion]:
    marked = [record for record in records if not record.pod.preemptable]
    gangs = {
        gang.key: gang.spec
        for record in records
        if (gang := record.gang) is not None and gang.spec is not None and not gang.spec.preemptable
    }

    def unmark(world: ChangedWorld) -> None:
        for record in marked:
            pod = record.pod
            world.changes.append((PodUpdated(_replace(pod, preemptable=True)), PodUpdated(pod)))
        for spec in gangs.values():
            world.changes.append((GangUpdated(_replace(spec, preemptable=True)), GangUpdated(spec)))

    if marked or gangs:
        subject = ", ".join(f"gang {gang.title}" for gang in gangs.values()) if gangs else named(marked)
        yield Suggestion(f"make {subject} preemptable (volcano.sh/preemptable)", unmark)


def named(records: Sequence[PodRecord]) -> str:
    """Return the names of queues or quotas as a list: `a/x, a/y and 3 more`."""
    names = sorted(record.pod.key for record in records)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
