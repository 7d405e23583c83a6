"""Rounds that choose member clusters: one forecast per cluster for many waiting gangs, then one write per decision.

The gangs are considered in the ledger's order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec

from phalanx.dialects.times import format_time, parse_time
from phalanx.hub import protocol
from phalanx.hub.choice.asked_objects import declared, kind_of
from phalanx.hub.choice.assignment import MOST_WAITING, Candidate, Decision, Standing, Wish, decide, refusals
from phalanx.hub.choice.estimates import AskedGang, Estimates
from phalanx.hub.choice.ledger import ClusterLedger, QueueDemand, WaitingGang, demand_of
from phalanx.hub.choice.questions import Questions, run_rounds
from phalanx.hub.data_objects import DataNeeds, bytes_to_move, held_data
from phalanx.hub.dispatch import Dispatch, DispatchAttempt, DispatchStatus, Phase
from phalanx.hub.gangs import GangKind, HubObjects
from phalanx.hub.jobs.kinds import JOB_KINDS, JobKind
from phalanx.hub.members.connection import CONNECTING, ClusterConnection
from phalanx.hub.names import GROUP_KINDS
from phalanx.hub.objects import Json, StoredObject, printable
from phalanx.hub.observed import OriginGang
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.account import Account as Queue
from phalanx.scheduling.framework.policy import Policy

log = logging.getLogger(__name__)

#: Seconds for which a cluster that has rejected a gang is not asked about it again.
REFUSED_SECONDS = 300
#: Maximum number of gangs per question, and of concurrent writes of records.
MOST_ASKED = 64
_WRITERS = 16
#: Maximum number of gangs of a queue at its limit that one round reports.
_MOST_REFUSED = 50
#: Seconds to gather changes, until refused gangs are asked about again, and until a hub that has just started
#: checks the connections of its clusters again.
_GATHER = 0.02
_AGAIN = 5.0
_UNSETTLED = 0.3

Write = Callable[[Dispatch, DispatchStatus], Awaitable[bool]]
Copies = Callable[[Dispatch, OriginGang, int], Sequence[Json]]


class _Considered(msgspec.Struct):
    """Waiting gang with the objects for its forecast.

    `unasked` is the reason why no cluster is asked and any allowed cluster is used.
    """

    record: Dispatch
    gang: OriginGang
    waiting: WaitingGang
    asked: AskedGang
    kind: str
    needs: DataNeeds = DataNeeds()
    unasked: str = ""


class Rounds:
    """Rounds that choose member clusters for the gangs at the hub.

    `copies` returns a gang's objects as they would be created in an epoch. `write` writes a record's status and
    returns whether the record was current. `queues` returns the hub's queues by name.
    """

    def __init__(
        self,
        objects: HubObjects,
        connections: Mapping[str, ClusterConnection],
        specs: Mapping[str, Json],
        estimates: Estimates,
        policy: Policy,
        schedulers: Sequence[str],
        copies: Copies,
        write: Write,
        queues: Callable[[], Mapping[str, Queue]],
        patience: int,
    ) -> None:
        self._objects = objects
        self._connections = connections
        self._specs = specs
        self._estimates = estimates
        self._policy = policy
        self._schedulers = schedulers
        self._copies = copies
        self._write = write
        self._queues = queues
        self._patience = patience
        self._began = time.time()
        #: Waiting gangs with the time (of the event loop's clock) of their next question.
        self._waiting: dict[str, float] = {}
        self._considered: dict[str, tuple[object, _Considered]] = {}
        #: Refusals by kind of gang, with the time until which they are reused.
        self._refused: dict[str, tuple[float, tuple[Candidate, ...]]] = {}
        self._questions = Questions(estimates, lambda name: connections[name], late_is_never=False)
        self._wake = asyncio.Event()

    def add(self, gang_uid: str) -> None:
        """Add a gang that needs a member cluster."""
        if gang_uid not in self._waiting:
            self._waiting[gang_uid] = 0.0
            self._wake.set()

    def look_again(self) -> None:
        """Retry all refused gangs after a change of member clusters."""
        self._refused.clear()
        for uid in self._waiting:
            self._waiting[uid] = 0.0
        self._wake.set()

    async def run(self) -> None:
        """Execute rounds until cancelled."""
        try:
            await run_rounds(self._wake, self.round, _GATHER)
        finally:
            await self._questions.close()

    async def round(self) -> float:
        """Execute one round; return the seconds until the next round if nothing changes before."""
        now = int(time.time())
        if now - self._began < self._patience and not self._settled():
            return _UNSETTLED
        batch, held = self._batch()
        if not batch and not held:
            return self._next()
        wishes = [self._wish(considered, now) for considered in batch]
        answers = await self._ask(batch, wishes)
        now = int(time.time())
        decisions = decide(wishes, answers, self._standings(), now)
        limit = asyncio.Semaphore(_WRITERS)

        async def execute(considered: _Considered, decision: Decision) -> None:
            async with limit:
                await self._carry_out(considered, decision, now)

        async def hold(considered: _Considered, reason: str, refusal: str) -> None:
            async with limit:
                await self._publish(considered, reason, refusal, (), now)

        await asyncio.gather(
            *(execute(considered, decisions[considered.record.uid]) for considered in batch),
            *(hold(*considered) for considered in held),
        )
        return self._next()

    def _next(self) -> float:
        if not self._waiting:
            return 60.0
        return max(0.0, min(self._waiting.values()) - asyncio.get_running_loop().time())

    # -- the gangs of a question ---------------------------------------------------------------------------

    def _batch(self) -> tuple[list[_Considered], list[tuple[_Considered, str, str]]]:
        """Return the next gangs in the ledger's order, and the gangs that cannot be sent, with reason and message.

        Gangs are held by a queue limit or by missing data.
        """
        clock = asyncio.get_running_loop().time()
        due: dict[str, _Considered] = {}
        held: list[tuple[_Considered, str, str]] = []
        for gang_uid in [uid for uid, moment in self._waiting.items() if moment <= clock]:
            considered = self._consider(gang_uid)
            if considered is None:
                self._waiting.pop(gang_uid)
                self._considered.pop(gang_uid, None)
            elif considered.needs.waits_for:
                # It delays no other gang: it is asked about when its data are complete.
                self._waiting[gang_uid] = clock + _AGAIN
                status = considered.record.status
                if len(held) < _MOST_REFUSED and (status.reason, status.message) != (
                    considered.needs.reason,
                    considered.needs.waits_for,
                ):
                    held.append((considered, considered.needs.reason, considered.needs.waits_for))
            else:
                due[considered.waiting.uid] = considered
        ledger, batch = self._ledger(), list[_Considered]()
        refusals_of, names = dict[str, int](), set[str]()
        for waiting, refusal in ledger.in_order(considered.waiting for considered in due.values()):
            considered = due[waiting.uid]
            if refusal:
                refusals_of[waiting.demand.queue] = refusals_of.get(waiting.demand.queue, 0) + 1
                if refusals_of[waiting.demand.queue] <= _MOST_REFUSED:
                    held.append((considered, "QuotaExceeded", refusal))
                self._waiting[considered.gang.uid] = clock + _AGAIN
            elif (known := self._refused.get(considered.kind)) is not None and known[0] > clock:
                self._waiting[considered.gang.uid] = known[0]
            elif waiting.name not in names:
                # A job and a PodGroup of the same name are asked about one after the other.
                names.add(waiting.name)
                batch.append(considered)
                if len(batch) == MOST_ASKED:
                    break
        return batch, held

    def _consider(self, gang_uid: str) -> _Considered | None:
        """Return a gang with the objects for its forecast; None if it needs no member cluster now."""
        record, gang = self._objects.record(gang_uid), self._objects.view(gang_uid)
        if record is None or gang is None or record.phase is not Phase.PENDING or record.deleting:
            return None
        kind_and_group = self._objects.group(gang_uid)
        if kind_and_group is None or not gang.complete or gang.suspended:
            return None
        kind, group = kind_and_group
        pods = self._objects.members(kind, group)
        needs = self._objects.data_needs(gang_uid)
        version = (group.resource_version, tuple(pod.uid for pod in pods), gang, record.version, needs)
        known = self._considered.get(gang_uid)
        if known is not None and known[0] == version:
            return known[1]
        name = f"{group.namespace}/{group.name}"
        asked, unasked = self.asked_gang(record), ""
        if isinstance(kind, JobKind):
            _, unasked = declared(kind, group.document)
        demand = self._demand_of(kind, group)
        created = parse_time(group.document["metadata"].get("creationTimestamp"))
        considered = _Considered(
            record,
            gang,
            WaitingGang(record.uid, name, created, demand),
            asked,
            kind_of(asked.copies, gang, record, needs),
            needs,
            unasked,
        )
        self._considered[gang_uid] = (version, considered)
        return considered

    def _ledger(self) -> ClusterLedger:
        """Return the ledger with the usage in all member clusters and of the gangs that the hub has sent."""
        accounts = [self._estimates.account(name) for name in self._connections]
        ledger = ClusterLedger([account for account in accounts if account is not None], self._queues())
        for record in self._objects.records.values():
            if record.status.cluster and record.phase is not Phase.ENDED:
                ledger.charge(self.demand(record.gang.uid))
        return ledger

    def demand(self, gang_uid: str) -> QueueDemand:
        known = self._considered.get(gang_uid)
        if known is not None:
            return known[1].waiting.demand
        kind_and_group = self._objects.group(gang_uid)
        if kind_and_group is None:
            return QueueDemand()
        kind, group = kind_and_group
        demand = self._demand_of(kind, group)
        gang, record = self._objects.view(gang_uid), self._objects.record(gang_uid)
        if gang is not None and record is not None:
            name = f"{group.namespace}/{group.name}"
            waiting = WaitingGang(record.uid, name, 0, demand)
            self._considered[gang_uid] = (
                None,
                _Considered(record, gang, waiting, AskedGang(record.uid, name, ()), ""),
            )
        return demand

    def _demand_of(self, kind: GangKind, group: StoredObject) -> QueueDemand:
        documents: Sequence[Json]
        if isinstance(kind, JobKind):
            documents, _ = declared(kind, group.document)
        else:
            documents = [group.document, *(pod.document for pod in self._objects.members(kind, group))]
        return demand_of(documents, self._policy, self._schedulers)

    def asked_gang(self, record: Dispatch) -> AskedGang:
        """Return a gang as it would be created in a member cluster in its next epoch.

        A deleted gang and a job with too many pods have no objects.
        """
        gang, kind_and_group = self._objects.view(record.gang.uid), self._objects.group(record.gang.uid)
        name = f"{record.namespace}/{record.gang.name}"
        if gang is None or kind_and_group is None:
            return AskedGang(record.uid, name, ())
        kind, group = kind_and_group
        if isinstance(kind, JobKind):
            return AskedGang(record.uid, name, declared(kind, group.document)[0], declared=True)
        return AskedGang(record.uid, name, tuple(self._copies(record, gang, record.status.epoch + 1)))

    def may_go(self, record: Dispatch, cluster: str) -> bool:
        """Return whether a gang of another cluster is allowed in this member cluster, without a forecast."""
        gang = self._objects.view(record.gang.uid)
        if gang is None:
            return False
        needs = self._objects.data_needs(record.gang.uid)
        answer = self._standing_answer(cluster, record, gang, needs, int(time.time()))
        return answer is not None and not answer.never

    # -- the question --------------------------------------------------------------------------------------

    def _wish(self, considered: _Considered, now: int) -> Wish:
        candidates, asked = list[Candidate](), set[str]()
        for name in sorted(self._connections):
            candidate = self._standing_answer(name, considered.record, considered.gang, considered.needs, now)
            if candidate is not None:
                if considered.unasked and not candidate.never:
                    candidate = msgspec.structs.replace(candidate, message=considered.unasked)
                candidates.append(candidate)
                if not candidate.never and not considered.unasked:
                    asked.add(name)
        return Wish(considered.record.uid, considered.kind, tuple(candidates), frozenset(asked))

    def _standing_answer(
        self, name: str, record: Dispatch, gang: OriginGang, needs: DataNeeds, now: int
    ) -> Candidate | None:
        """Return the result for a gang in a member cluster that is known without a forecast.

        None means that the gang does not allow the cluster; `never` that the cluster need not be asked.
        """
        connection, spec = self._connections[name], self._specs.get(name, {})
        if gang.clusters and name not in gang.clusters:
            return None
        if spec.get("state") not in (None, "Active"):
            return Candidate(name, never=True, message=f"is {spec.get('state')}")
        if not connection.ready:
            return Candidate(name, never=True, message=printable(f"{connection.reason}: {connection.message}"))
        for attempt in reversed(record.status.attempts):
            if attempt.cluster == name and _recent(attempt, now):
                return Candidate(name, never=True, message=attempt.message)
        kinds = [kind.resource for kind in GROUP_KINDS] + [kind.resource for kind in JOB_KINDS]
        wanted = (record.gang.api_version, record.gang.kind)
        served = [kind for kind in kinds if (kind.api_version, kind.kind) == wanted]
        if served and served[0] not in connection.kinds:
            problem = f"does not serve {served[0].plural}.{served[0].group}"
            return Candidate(name, never=True, message=problem)
        missing_bytes = 0
        if not needs.anywhere:
            data = held_data(spec)
            if refusal := data.refusal(name, needs):
                return Candidate(name, never=True, message=refusal)
            missing_bytes = bytes_to_move(data, map(held_data, self._specs.values()), needs)
        cost = spec.get("cost")
        return Candidate(name, cost=cost if isinstance(cost, int) else 0, bytes_to_move=missing_bytes)

    async def _ask(self, batch: Sequence[_Considered], wishes: Sequence[Wish]) -> dict[str, dict[str, Candidate]]:
        """Request the forecasts for the gangs of a round. Return them by cluster and gang."""
        gangs: dict[str, list[AskedGang]] = {}
        for considered, wish in zip(batch, wishes, strict=True):
            for name in wish.asked:
                gangs.setdefault(name, []).append(considered.asked)
        return await self._questions.ask(gangs)

    def _standings(self) -> dict[str, Standing]:
        standings = {name: Standing(most=_most(self._specs.get(name, {}))) for name in self._connections}
        for record in self._objects.records.values():
            standing = standings.get(record.status.cluster)
            if standing is not None:
                standing.dispatches += 1
                standing.waiting += self.waits(record)
        return standings

    def waits(self, record: Dispatch) -> bool:
        """Return whether the gang was sent to a member cluster and has not started there, as far as observed."""
        if record.phase is Phase.COPYING:
            return True
        connection = self._connections.get(record.status.cluster)
        if record.phase is not Phase.GRANTED or connection is None or not connection.ready:
            return False
        copies = list(connection.copies(record.uid))
        return bool(copies) and not any((copy.document.get("spec") or {}).get("nodeName") for copy in copies)

    # -- the decisions -------------------------------------------------------------------------------------

    async def _carry_out(self, considered: _Considered, decision: Decision, now: int) -> None:
        clock = asyncio.get_running_loop().time()
        if decision.again:
            self._waiting[considered.gang.uid] = 0.0
            return
        if not decision.cluster:
            self._waiting[considered.gang.uid] = clock + _AGAIN
            self._refused[considered.kind] = (clock + _AGAIN, decision.answers)
            await self._publish(considered, "NoCluster", refusals(decision.answers), decision.answers, now)
            return
        self._waiting.pop(considered.gang.uid, None)
        self._estimates.sent(decision.cluster, considered.asked)
        answers = tuple(answer.answer() for answer in decision.answers)
        promised = format_time(max(decision.start, now)) if decision.start is not None else ""
        status = protocol.chosen(considered.record.status, decision.cluster, now, promised)
        if not await self._put(considered, msgspec.structs.replace(status, answers=answers)):
            self._estimates.left(decision.cluster, considered.record.uid)
            self._waiting[considered.gang.uid] = clock + _UNSETTLED

    async def _publish(
        self, considered: _Considered, reason: str, message: str, answers: Iterable[Candidate], now: int
    ) -> None:
        """Write the reason why a gang waits at the hub into its Dispatch, if the reason has changed."""
        current = considered.record.status
        if (current.reason, current.message) != (reason, message):
            shown_answers = tuple(answer.answer() for answer in answers)
            await self._put(
                considered, msgspec.structs.replace(current, reason=reason, message=message, answers=shown_answers)
            )

    async def _put(self, considered: _Considered, status: DispatchStatus) -> bool:
        try:
            return await self._write(considered.record, status)
        except (ApiError, ConnectionLost) as error:
            log.info("gang %s: %s", considered.waiting.name, error)
            return False

    def _settled(self) -> bool:
        """Return whether each member cluster is connected or has failed to connect.

        A hub that has just started must not treat the first cluster that answers as the only one.
        """
        return all(
            (connection := self._connections.get(name)) is None or connection.reason != CONNECTING
            for name in (cluster.name for cluster in self._objects.clusters.values())
        ) and bool(self._connections or not len(self._objects.clusters))


def _most(spec: Json) -> int:
    max_waiting = spec.get("maxWaiting")
    return max_waiting if isinstance(max_waiting, int) and max_waiting >= 0 else MOST_WAITING


def _recent(attempt: DispatchAttempt, now: int) -> bool:
    return attempt.outcome == "Refused" and now - parse_time(attempt.time) < REFUSED_SECONDS
