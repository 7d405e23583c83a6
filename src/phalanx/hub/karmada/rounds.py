"""Rounds that schedule bindings: one forecast per cluster for all waiting bindings, then one result for each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from phalanx.controllers.store import ObjectStore
from phalanx.hub.choice.assignment import Candidate, Decision, Standing, decide
from phalanx.hub.choice.estimates import AskedCluster, Estimates
from phalanx.hub.choice.questions import Questions, run_rounds
from phalanx.hub.jobs.kinds import at
from phalanx.hub.karmada import bindings
from phalanx.hub.karmada.bindings import Step
from phalanx.hub.karmada.questions import AskedBinding, BindingRefusedError, consider, gangs_by_cluster, wish
from phalanx.hub.objects import Json, StoredObject, printable
from phalanx.kube.changes import Key
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.timestamps import format_time

log = logging.getLogger(__name__)

#: Maximum number of bindings per question.
_MOST_ASKED = 64
#: Seconds to gather changes, until a failed binding is asked about again, until a new message for the same reason
#: is written, and for which a sent binding is counted before its cluster shows it.
_GATHER = 0.05
_AGAIN = 15.0
_NEW_WORDS = 300.0
_UNSEEN = 120.0
_FORBIDDEN = frozenset({400, 403, 422})

Tell = Callable[[StoredObject, str, str, str], None]


class BindingRounds:
    """Rounds that choose clusters for all bindings of this scheduler.

    `connect` returns the connection to a cluster by name. `tell` records an event (reason, note, type) on a
    binding's template.
    """

    def __init__(
        self,
        client: KubeClient,
        stored: ObjectStore[StoredObject],
        clusters: ObjectStore[StoredObject],
        estimates: Estimates,
        connect: Callable[[str], AskedCluster],
        tell: Tell,
        again: float = _AGAIN,
    ) -> None:
        self._client = client
        self._bindings = stored
        self._clusters = clusters
        self._estimates = estimates
        # A late cluster refuses for now: the binding is asked about again soon, and is sent to a cluster with an
        # answer.
        self._questions = Questions(estimates, connect, late_is_never=True)
        self._tell = tell
        self._again = again
        #: Bindings to process, with the time (of the event loop's clock).
        self._due: dict[Key, float] = {}
        #: Chosen cluster, and the time until which the binding is counted there, by the binding's uid.
        self._sent: dict[str, tuple[str, float]] = {}
        #: Reason of the last event, and the time of the last written failure, by the binding's uid.
        self._last_reason: dict[str, str] = {}
        self._failed: dict[str, float] = {}
        self._wake = asyncio.Event()

    def changed(self, key: Key, old: StoredObject | None, new: StoredObject | None) -> None:
        """Schedule the next steps after a change in the store of bindings."""
        if old is not None and (new is None or new.uid != old.uid):
            self._forget(old.uid)
        if new is None:
            self._due.pop(key, None)
        else:
            self._due[key] = 0.0
            self._wake.set()

    def clusters_changed(self) -> None:
        for binding in self._bindings.values():
            self._due[(binding.namespace, binding.name)] = 0.0
        self._wake.set()

    async def run(self) -> None:
        """Execute rounds until cancelled."""
        try:
            await run_rounds(self._wake, self.round, _GATHER)
        finally:
            await self._questions.close()

    async def round(self) -> float:
        """Execute one round; return the seconds until the next round if nothing changes before."""
        clock = asyncio.get_running_loop().time()
        clusters = self._by_name()
        self._release(clock)
        waiting = []
        for key in [key for key, moment in self._due.items() if moment <= clock]:
            binding = self._bindings.get(key)
            step = bindings.next_step(binding.document, clusters) if binding is not None else Step.LEAVE
            if binding is not None and step is Step.CHOOSE:
                waiting.append(binding)
                continue
            self._due.pop(key, None)
            if step is Step.CONFIRM:
                await self._update(key, clusters)
        waiting.sort(key=_order)
        await self._choose(waiting, clusters)
        if not self._due:
            return 60.0
        return max(0.0, min(self._due.values()) - asyncio.get_running_loop().time())

    def _by_name(self) -> dict[str, StoredObject]:
        return {cluster.name: cluster for cluster in self._clusters.values()}

    # -- scheduled bindings --------------------------------------------------------------------------------

    async def _update(self, key: Key, clusters: Mapping[str, StoredObject]) -> None:
        """Write the outstanding patches of a scheduled binding."""
        binding = self._bindings.get(key)
        if binding is None:
            return
        if moment := bindings.asks_to_move(binding.document):
            note = "a gang is not moved on request; delete the job and create it again for another choice"
            self._once(binding, "NotMoved", f"{note} (requested at {printable(moment, 40)})")
        patch = bindings.upkeep(binding.document)
        if patch is not None:
            written = await self._write(binding, patch)
            if written is None:
                return
            binding = written
        status = bindings.confirmation(binding.document, clusters, time.time())
        if status is not None:
            await self._write(binding, status, "status")

    def _release(self, clock: float) -> None:
        """Stop counting bindings as sent once their cluster shows the bound objects."""
        for binding in self._bindings.values():
            sent = self._sent.get(binding.uid)
            if sent is not None and (clock > sent[1] or bindings.applied(binding.document, sent[0])):
                self._forget_sent(binding.uid)

    def _forget_sent(self, uid: str) -> None:
        cluster, _ = self._sent.pop(uid)
        self._estimates.left(cluster, uid)

    def _forget(self, uid: str) -> None:
        self._last_reason.pop(uid, None)
        self._failed.pop(uid, None)
        if uid in self._sent:
            self._forget_sent(uid)

    # -- unscheduled bindings ------------------------------------------------------------------------------

    async def _choose(self, waiting: Sequence[StoredObject], clusters: Mapping[str, StoredObject]) -> None:
        by_name: dict[str, AskedBinding] = {}
        for binding in waiting:
            if len(by_name) == _MOST_ASKED:
                break  # all further bindings are still due
            key = (binding.namespace, binding.name)
            self._due[key] = asyncio.get_running_loop().time() + self._again
            try:
                asked = await consider(self._client, binding, clusters)
            except BindingRefusedError as refusal:
                await self._refuse(binding, refusal)
            except (ApiError, ConnectionLost) as error:
                log.info("binding %s/%s: %s", *key, error)
            except Exception as error:
                # A malformed template must not keep other bindings from being scheduled.
                log.warning("binding %s/%s: %s: %s", *key, type(error).__name__, printable(error))
                await self._refuse(
                    binding, BindingRefusedError(f"its template cannot be read: {type(error).__name__}")
                )
            else:
                if asked.gang.name in by_name:
                    self._due[key] = 0.0  # bindings with the same gang name are asked about one after the other
                else:
                    by_name[asked.gang.name] = asked
        if by_name:
            await self._decide(list(by_name.values()))

    async def _decide(self, batch: Sequence[AskedBinding]) -> None:
        answers = await self._questions.ask(gangs_by_cluster(batch))
        now = int(time.time())
        wishes = [wish(asked, answers) for asked in batch]
        decisions = decide(wishes, answers, self._standings(now), now)
        for asked in batch:
            await self._carry_out(asked, decisions[asked.gang.uid], now)

    def _standings(self, now: int) -> dict[str, Standing]:
        standings = {name: Standing() for name in self._by_name()}
        for binding in self._bindings.values():
            for name in bindings.targets(binding.document):
                if (standing := standings.get(name)) is not None:
                    standing.dispatches += 1
                    standing.waiting += bindings.promised_later(binding.document, now)
        return standings

    async def _carry_out(self, asked: AskedBinding, decision: Decision, now: int) -> None:
        key = (asked.binding.namespace, asked.binding.name)
        if decision.again:
            self._due[key] = 0.0
            return
        answers = sorted((*decision.answers, *asked.barred), key=lambda answer: answer.name)
        if not decision.cluster:
            message = "; ".join(map(_why_not, answers)) or "no cluster is in the policy's placement"
            await self._fail(asked.binding, bindings.NO_CLUSTER_FIT, message)
            return
        start = format_time(max(decision.start, now)) if decision.start is not None else ""
        before = bindings.targets(asked.binding.document)
        if asked.gang.uid in self._sent:
            self._forget_sent(asked.gang.uid)
        self._sent[asked.gang.uid] = (decision.cluster, asyncio.get_running_loop().time() + _UNSEEN)
        self._estimates.sent(decision.cluster, asked.gang)
        written = await self._write(
            asked.binding, bindings.result(asked.binding.document, decision.cluster, answers, start)
        )
        if written is None:
            self._forget_sent(asked.gang.uid)
            return
        answers_text = bindings.answers_text(answers)
        instead = printable(f" instead of {', '.join(before)}", 100) if before else ""
        self._event(
            written, "Dispatched", f"scheduled to cluster {decision.cluster}{instead}: {answers_text}", "Normal"
        )
        await self._update(key, self._by_name())

    # -- writes ---------------------------------------------------------------------------------------------

    async def _write(
        self, binding: StoredObject, patch: Json, subresource: str | None = None
    ) -> StoredObject | None:
        """Write a patch of a binding based on the read version; return None if it was rejected or the version is
        outdated."""
        key = (binding.namespace, binding.name)
        path = bindings.BINDINGS.path(*key, subresource)
        try:
            answer = await self._client.patch(path, patch, PatchType.MERGE)
        except ApiError as error:
            if error.status in _FORBIDDEN and subresource is None:
                reason = bindings.QUOTA_EXCEEDED if "quota" in str(error).lower() else bindings.SCHEDULER_ERROR
                await self._fail(binding, reason, f"the result was rejected: {error}")
            elif error.status not in (404, 409):
                log.warning("binding %s/%s: %s", *key, printable(error))
            self._due[key] = asyncio.get_running_loop().time() + self._again
            return None
        except ConnectionLost as error:
            log.info("binding %s/%s: %s", *key, error)
            self._due[key] = asyncio.get_running_loop().time() + self._again
            return None
        self._bindings.put(key, msgspec.json.encode(answer))
        return self._bindings.get(key)

    async def _refuse(self, binding: StoredObject, refusal: BindingRefusedError) -> None:
        if refusal.quiet:
            return
        self._due.pop((binding.namespace, binding.name), None)  # its next change is processed
        await self._fail(binding, bindings.UNSCHEDULABLE, str(refusal))

    async def _fail(self, binding: StoredObject, reason: str, message: str) -> None:
        self._once(binding, reason, message)
        known = at(binding.document, ("status", "conditions"))
        same_reason = isinstance(known, list) and any(
            isinstance(condition, dict)
            and (condition.get("type"), condition.get("reason")) == (bindings.SCHEDULED, reason)
            for condition in known
        )
        clock = asyncio.get_running_loop().time()
        if same_reason and clock < self._failed.get(binding.uid, 0.0):
            return
        patch = bindings.failure(binding.document, reason, message, time.time())
        if patch is None:
            return
        self._failed[binding.uid] = clock + _NEW_WORDS
        due = self._due.get((binding.namespace, binding.name))
        if await self._write(binding, patch, "status") is not None and due is not None:
            # The watch event of this write is no reason to ask at once.
            self._due[(binding.namespace, binding.name)] = due

    def _once(self, binding: StoredObject, reason: str, message: str) -> None:
        if self._last_reason.get(binding.uid) != reason:
            self._last_reason[binding.uid] = reason
            self._event(binding, reason, message, "Warning")

    def _event(self, binding: StoredObject, reason: str, note: str, kind: str) -> None:
        if kind == "Normal":
            self._last_reason.pop(binding.uid, None)
        self._tell(binding, reason, note, kind)


def _order(binding: StoredObject) -> tuple[int, str, str, str]:
    """Return Karmada's own sort key of a binding: the highest priority first, then the oldest."""
    priority = at(binding.document, ("spec", "schedulePriority", "priority"))
    created = str(at(binding.document, ("metadata", "creationTimestamp")) or "")
    return -priority if isinstance(priority, int) else 0, created, binding.namespace, binding.name


def _why_not(answer: Candidate) -> str:
    """Return the reason of a cluster for not starting a gang, without times, as they would change the message with
    each check."""
    if answer.start is not None:
        return f"{answer.name}: its limit of waiting gangs is reached"
    return f"{answer.name}: {answer.message or 'cannot run it'}"
