"""The job of a scenario: gangs whose form the two features of a pair decide, and their controller."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.cluster.pods.records import PodRecord
from phalanx.dialects.families.native import NAMING
from phalanx.model.composite import Composite
from phalanx.model.devices.cards import CardShare, DeviceNeed, Family
from phalanx.model.events import CompositeUpdated
from phalanx.model.gang import ExpectedMembers, GangKey, GroupRef, MatchPolicy
from phalanx.model.pod import MemberState, PodClass
from phalanx.model.run_time import RunTime
from phalanx.model.topology import TopologyRule

from ..scheduling.scenario import NAMESPACE, amounts
from .world import CARD_MEMORY, COUNT, MEMORY, RACK, World

MEMBERS = 2
PRIORITY = 10
QUEUE = "lab"
LIMIT = 5000


class Form(msgspec.Struct):
    """Form of the job. Each gang has `MEMBERS` required members of one CPU."""

    gangs: tuple[str, ...] = ("job",)
    surplus: int = 0
    expected: int = 0
    cards: bool = False
    in_a_rack: bool = False
    limit: int = 0
    admission: bool = False
    suspended: bool = False


class Job:
    """The gangs of the job, with replacements for members that are gone."""

    def __init__(self, world: World, form: Form) -> None:
        self.world, self.form = world, form
        self._made = 0
        self.suspended = form.suspended

    def submit(self) -> None:
        """Create the groups, and the pods unless their creation waits for admission."""
        if len(self.form.gangs) > 1:
            key = GangKey(NAMESPACE, "tree")
            ref = GroupRef("scheduling.k8s.io", "v1alpha3", "CompositePodGroup", "compositepodgroups", *key_of(key))
            spec = Composite(key, ref, len(self.form.gangs), unit=True)
            self.world.observe("composite tree", CompositeUpdated(spec))
        for gang in self.form.gangs:
            self._declare(gang)
        self.world.controllers.append(self.reconcile)
        self.reconcile()

    def _declare(self, gang: str, **changed: Any) -> None:
        form = self.form
        fields: dict[str, Any] = {"created": self.world.now, "queue": QUEUE}
        if form.in_a_rack:
            fields["topology"] = TopologyRule.by_label(RACK)
        if len(form.gangs) > 1:
            fields |= {"composite": GangKey(NAMESPACE, "tree"), "rules": NAMING.rules}
            fields["match_policy"] = MatchPolicy.UNTIL_SCHEDULED
        if form.admission or form.suspended:
            size = MEMBERS + form.expected
            fields |= {"admission": True, "admitted": False, "min_resources": amounts(cpu=size)}
        if form.expected:
            fields["expected"] = ExpectedMembers(form.expected, (), 3000)
        self.world.gang(gang, MEMBERS, **fields | changed)

    def reconcile(self) -> None:
        """Replace members that are gone; a suspended job has none until its groups are admitted."""
        world = self.world
        for gang in self.form.gangs:
            self._forget_expected(gang)
        specs = [world.state.gangs[GangKey(NAMESPACE, gang)].spec for gang in self.form.gangs]
        if self.form.suspended:
            leaving = any(record.pod.terminating for record in self._records())
            if leaving and self.suspended:
                return
            if leaving and not self.runs:
                # Its controller suspends the job: the remaining pods are deleted, the group awaits admission again.
                self.suspended = True
                for gang in self.form.gangs:
                    world.gang(gang, MEMBERS, admitted=False)
                for record in self._records():
                    if not record.pod.terminating:
                        world.gone(record.pod.uid)
                return
            self.suspended = not all(spec is not None and spec.admitted for spec in specs)
            if self.suspended:
                return
        for gang in self.form.gangs:
            live = [each for each in self._records(gang) if not each.pod.terminating and not each.pod.role]
            for _ in range(MEMBERS + self.form.surplus - len(live)):
                self._made += 1
                world.pod(f"{gang}-{self._made}", gang=gang, **self._pod())
            self._expect(gang)

    def _expect(self, gang: str) -> None:
        """Announce the expected members of a gang that has no member on a node."""
        record = self.world.state.gangs[GangKey(NAMESPACE, gang)]
        for _ in range(self.form.expected - len(record.placeholders) if not record.active else 0):
            self._made += 1
            more = {"placeholder": True, "index": self._made}
            name = f"{gang}-expected-{self._made}"
            self.world.pod(name, gang=gang, cpu=1, priority=PRIORITY, queue=QUEUE, more=more)

    def _forget_expected(self, gang: str) -> None:
        """Remove the placeholders of a leader that is gone."""
        record = self.world.state.gangs[GangKey(NAMESPACE, gang)]
        if not any(each.pod.node and not each.pod.terminating for each in record.members.values()):
            for uid in [uid for uid, each in record.placeholders.items() if each.pod.expires]:
                self.world.gone(uid)

    def create_expected(self) -> None:
        """Let the running gangs create their expected members."""
        for gang in self.form.gangs:
            record = self.world.state.gangs[GangKey(NAMESPACE, gang)]
            for placeholder in list(record.placeholders):
                self._made += 1
                name = f"{gang}-{self._made}"
                self.world.pod(name, gang=gang, **{**self._pod(), "role": "late"})
                self.world.gone(placeholder)

    @property
    def holds_room(self) -> bool:
        """Whether room is held for each expected member that does not exist yet."""
        held = self.world.held()
        gangs = [self.world.state.gangs[GangKey(NAMESPACE, gang)] for gang in self.form.gangs]
        return all(uid in held for gang in gangs for uid in gang.placeholders)

    def _records(self, gang: str = "") -> list[PodRecord]:
        names = (gang,) if gang else self.form.gangs
        found = self.world.state.pods.values()
        return [
            each
            for each in found
            if each.pod.gang in names
            and not each.pod.placeholder
            and each.state not in (MemberState.SUCCEEDED, MemberState.FAILED)
        ]

    def _pod(self) -> dict[str, Any]:
        form = self.form
        fields: dict[str, Any] = {"cpu": 1, "priority": PRIORITY, "queue": QUEUE}
        made = PodClass()
        more: dict[str, Any] = {"controller": "job"}
        if form.cards:
            made = msgspec.structs.replace(
                made, devices=DeviceNeed(Family.VGPU, (CardShare(count=1, memory=CARD_MEMORY),))
            )
            fields |= {MEMORY: CARD_MEMORY, COUNT: 1}
        if form.limit:
            made = msgspec.structs.replace(made, run_limit=form.limit)
            more["run_time"] = RunTime(form.limit, allowed=form.limit, allowed_source="annotation of Queue lab")
        return {**fields, "pod_class": made, "more": more}

    # observations

    @property
    def waits(self) -> bool:
        """Whether no member is on a node."""
        return not self.placed

    @property
    def placed(self) -> list[str]:
        return self._on_nodes(self._records())

    @property
    def pods(self) -> list[str]:
        """Return the members that exist and are not terminating."""
        return [each.pod.uid for each in self._records() if not each.pod.terminating]

    @property
    def required(self) -> int:
        """Return the number of members that all gangs need."""
        return MEMBERS * len(self.form.gangs)

    @property
    def admitted(self) -> bool:
        return all(
            (spec := self.world.state.gangs[GangKey(NAMESPACE, gang)].spec) is not None and spec.admitted
            for gang in self.form.gangs
        )

    @property
    def runs(self) -> bool:
        """Whether every required member is on a node."""
        groups = [self._records(gang) for gang in self.form.gangs]
        return all(len(self._on_nodes(group)) >= MEMBERS for group in groups)

    def _on_nodes(self, records: list[PodRecord]) -> list[str]:
        return [
            each.pod.uid
            for each in records
            if self.world.where(each.pod.uid) and not each.evicting and not each.pod.terminating
        ]

    @property
    def racks(self) -> set[str]:
        return {self.world.where(uid)[0] for uid in self.placed}

    @property
    def reasons(self) -> set[str]:
        """Return the codes of the verdicts of the gangs."""
        return {self.world.reason(gang) for gang in self.form.gangs} - {""}


def key_of(key: GangKey) -> tuple[str, str, str]:
    return key.namespace, key.name, key.name
