"""Many member clusters and many gangs in virtual time: the real ledger, choice and protocol over
first-come-first-served clusters.
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections import deque
from dataclasses import dataclass, field

import msgspec

from phalanx.dialects.times import format_time, parse_time
from phalanx.hub import protocol
from phalanx.hub.choice.assignment import Candidate, Standing, Wish, decide
from phalanx.hub.choice.ledger import ClusterAccount, ClusterLedger, QueueDemand, WaitingGang
from phalanx.hub.dispatch import Dispatch, DispatchStatus, GangReference, Phase
from phalanx.hub.observed import ClusterView, CopyView, OriginGang, OriginPod

MOST_ASKED = 64
#: Seconds of virtual time that pass between two rounds.
ROUND = 20
RESOURCE = "nvidia.com/gpu"


@dataclass
class SimulatedGang:
    """One pod stands for all of it. `runs` in seconds."""

    uid: str
    size: int
    runs: int
    queue: str
    record: Dispatch
    origin: OriginPod
    starts: list[tuple[str, int]] = field(default_factory=list)

    @property
    def demand(self) -> QueueDemand:
        return QueueDemand(self.queue, 0, {RESOURCE: self.size})

    @property
    def waiting(self) -> WaitingGang:
        return WaitingGang(self.uid, self.uid, int(self.uid[1:]), self.demand)


class SimulatedMember:
    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.free = name, total, total
        self.waiting: deque[SimulatedGang] = deque()
        self.running: list[tuple[int, int, SimulatedGang]] = []
        self.copies: dict[str, CopyView] = {}
        self.groups: set[str] = set()
        self.news: list[SimulatedGang] = []

    def answers(self, gangs: list[SimulatedGang], now: int) -> dict[str, Candidate]:
        """Return start forecasts, as if all gangs arrived after the waiting ones."""
        ends = [(end, gang.size) for end, _, gang in self.running]
        heapq.heapify(ends)
        free, moment, found = self.free, now, dict[str, Candidate]()
        for gang in itertools.chain(self.waiting, gangs):
            if gang.size > self.total:
                found[gang.uid] = Candidate(self.name, never=True, message="is too small")
                continue
            while free < gang.size:
                end, size = heapq.heappop(ends)
                moment, free = max(moment, end), free + size
            free -= gang.size
            heapq.heappush(ends, (moment + gang.runs, gang.size))
            found[gang.uid] = Candidate(self.name, moment)
        return found

    def go_on(self, now: int) -> None:
        """End the gangs that are over and start the next ones."""
        while True:
            while self.running and self.running[0][0] <= now:
                _, _, gang = heapq.heappop(self.running)
                self.free += gang.size
                self.news.append(gang)
                self.copies[gang.uid] = msgspec.structs.replace(
                    self.copies[gang.uid], ended=True, over=True, news=True
                )
            if not self.waiting or self.waiting[0].size > self.free:
                return
            gang = self.waiting.popleft()
            self.free -= gang.size
            gang.starts.append((self.name, now))
            self.copies[gang.uid] = msgspec.structs.replace(self.copies[gang.uid], bound=True)
            heapq.heappush(self.running, (now + gang.runs, int(gang.uid[1:]), gang))


class Simulation:
    """A simulation. `seconds` are the measured times of its parts on this machine."""

    def __init__(self, members: int, gangs: int, seed: int = 1, sizes: tuple[int, ...] = (1, 2, 4, 8, 16)) -> None:
        self.random = random.Random(seed)
        self.now = 1_700_000_000
        self.members = {
            f"m{number:02d}": SimulatedMember(f"m{number:02d}", self.random.choice((64, 128, 256)))
            for number in range(members)
        }
        self.gangs = {each.uid: each for each in (self._gang(number, sizes) for number in range(gangs))}
        self.late: list[int] = []
        self.rounds = self.questions = 0
        self.seconds = {"ledger and choice": 0.0, "members": 0.0, "protocol": 0.0}
        self._active: dict[str, SimulatedGang] = {}
        # As the hub does, the simulation looks at no gang that needs nothing.
        self._pending = {uid: gang.waiting for uid, gang in self.gangs.items()}
        self._left = gangs

    def _gang(self, number: int, sizes: tuple[int, ...]) -> SimulatedGang:
        uid = f"g{number}"
        record = Dispatch("ns", uid, uid, "1", GangReference("v1", uid, uid), DispatchStatus())
        size, runs = self.random.choice(sizes), self.random.randrange(60, 3600)
        queue = self.random.choice(("research", "production", "default"))
        return SimulatedGang(uid, size, runs, queue, record, OriginPod(f"{uid}-0", f"o-{uid}"))

    def run(self, most_rounds: int = 100_000) -> None:
        while self._left:
            assert self.rounds < most_rounds, "it does not come to an end"
            began, members = time.process_time(), self.seconds["members"]
            # The hub's next round follows at once while it sends gangs.
            while self._round():
                pass
            chosen = time.process_time()
            self._write()
            self.seconds["protocol"] += time.process_time() - chosen
            self.seconds["ledger and choice"] += chosen - began - (self.seconds["members"] - members)
            self.now += ROUND
            for member in self.members.values():
                member.go_on(self.now)

    def _round(self) -> bool:
        """Run a round; return whether a gang was sent."""
        if not self._pending:
            return False
        self.rounds += 1
        ledger = ClusterLedger([ClusterAccount({RESOURCE: each.total}, {}) for each in self.members.values()], {})
        for gang in self._active.values():
            ledger.charge(gang.demand)
        in_order = itertools.islice(ledger.in_order(self._pending.values()), MOST_ASKED)
        batch = [self.gangs[each.uid] for each, _ in in_order]
        names = frozenset(self.members)
        wishes = [
            Wish(gang.uid, f"{gang.size}/{gang.runs}", tuple(Candidate(name) for name in sorted(names)), names)
            for gang in batch
        ]
        sent: dict[str, list[SimulatedGang]] = {}
        for gang in self._active.values():
            if gang.record.phase is Phase.COPYING:
                sent.setdefault(gang.record.status.cluster, []).append(gang)
        began = time.process_time()
        told = {name: each.answers([*sent.get(name, ()), *batch], self.now) for name, each in self.members.items()}
        self.seconds["members"] += time.process_time() - began
        self.questions += len(told)
        standings = {
            name: Standing(len(each.copies), len(each.waiting) + len(sent.get(name, ())), 5)
            for name, each in self.members.items()
        }
        went = False
        for uid, decision in decide(wishes, told, standings, self.now).items():
            if decision.cluster:
                gang = self.gangs[uid]
                promised = format_time(decision.start or self.now)
                status = protocol.chosen(gang.record.status, decision.cluster, self.now, promised)
                gang.record = msgspec.structs.replace(gang.record, status=status)
                self._active[uid] = gang
                del self._pending[uid]
                went = True
        return went

    def _write(self) -> None:
        """Execute the protocol's writes until it has none left at this moment."""
        news = [gang for gang in self._active.values() if gang.record.phase is Phase.COPYING]
        for each in self.members.values():
            news += each.news
            each.news.clear()
        for gang in news:
            member = self.members[gang.record.status.cluster]
            while True:
                copies = {each.uid: each for each in (member.copies.get(gang.uid),) if each is not None}
                view = ClusterView(member.name, copies, "group" if gang.uid in member.groups else "")
                steps = protocol.next_steps(
                    gang.record, OriginGang(gang.uid, (gang.origin,)), {member.name: view}, self.now
                )
                if not steps:
                    break
                for step in steps:
                    self._apply(step, gang, member)
            if gang.record.phase is Phase.ENDED:
                del self._active[gang.uid], member.copies[gang.uid]
                self._left -= 1

    def _apply(self, step: protocol.Step, gang: SimulatedGang, member: SimulatedMember) -> None:
        match step:
            case protocol.WriteStatus(status):
                gang.record = msgspec.structs.replace(gang.record, status=status)
            case protocol.CreateGroup():
                member.groups.add(gang.uid)
            case protocol.CreateCopy(name, origin_uid):
                epoch = gang.record.status.epoch
                member.copies[gang.uid] = CopyView(name, f"c-{gang.uid}", origin_uid, epoch, gated=True)
            case protocol.LiftGate():
                copy = member.copies[gang.uid]
                member.copies[gang.uid] = msgspec.structs.replace(copy, gated=False)
                member.waiting.append(gang)
            case protocol.MirrorStatus():
                gang.origin = msgspec.structs.replace(gang.origin, ended=True)
                member.copies[gang.uid] = msgspec.structs.replace(member.copies[gang.uid], news=False)
            case protocol.ReleaseCopy():
                member.copies[gang.uid] = msgspec.structs.replace(member.copies[gang.uid], held=False)
            case _:
                raise AssertionError(step)

    def slipped(self) -> list[int]:
        """By how many seconds gangs started after their promise."""
        return [
            start - parse_time(gang.record.status.promised)
            for gang in self.gangs.values()
            for _, start in gang.starts
        ]
