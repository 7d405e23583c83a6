"""Answer of `phalanx why` about one pod, gang or composite, as data for the commands, the page and `-o json`."""

from __future__ import annotations

import msgspec

from phalanx.model.gang import GangCounts
from phalanx.model.verdict import NOT_ENOUGH_MEMBERS, NodeCount, PodShape
from phalanx.reports.evicted_members import EvictedMembers
from phalanx.reports.eviction_entries import EvictionPreview
from phalanx.reports.run_times import RunTimeEntry
from phalanx.views.gang_state import GangState, PlacementForecast
from phalanx.views.promises import PromisedStart
from phalanx.views.verdict_texts import brief_text


class WhyAnswer(msgspec.Struct, omit_defaults=True):
    """State of one pod, gang or composite, and the reason why it is pending.

    - `state`: the observed state (docs/gang-states.md); a pod has that of a gang of one.
    - `forecast`: the outcome of the dry run.
    - `reason`, `message`: code and sentence of the dominant reason while it is pending.
    - `nodes`: number of nodes that each filter rejects; `change`: the smallest change that would help. Both are
      empty where nothing blocks it.
    - `gang`: key of the gang of a pod; `gang_name`: its shown name. Both begin with the namespace.
    - `placeable`, `missing`: members that fit now, and those that do not fit or do not exist.
    - `evictions`: set while it waits for room. `loss`: set where a gang lost members to evictions and lacks them.
    - `domain`: topology domain of a gang with a topology, current or planned.
    - `object`: name of the declaring object as kubectl accepts it, such as podgroups.scheduling.x-k8s.io/train.
    - `composite`: name of the composite above a gang; `groups`: the gangs of a composite.
    - `size`: set for a gang with more members than its minimum, present or expected.
    - `pod_shapes`: the pods for which an autoscaler is to create nodes.
    - `start`: promised start while it waits for room; `run_time`: end of its run-time limit.
    """

    kind: str
    name: str
    state: GangState
    message: str
    reason: str = ""
    gang: str = ""
    minimum: int = 0
    members: GangCounts | None = None
    placeable: int = 0
    missing: int = 0
    nodes: list[NodeCount] = []
    change: str = ""
    warnings: list[str] = []
    evictions: EvictionPreview | None = None
    loss: EvictedMembers | None = None
    uid: str = ""
    domain: str = ""
    composite: str = ""
    groups: list[GroupLine] = []
    size: GangSize | None = None
    start: PromisedStart | None = None
    run_time: RunTimeEntry | None = None
    forecast: PlacementForecast = PlacementForecast.NONE
    gang_name: str = ""
    object: str = ""
    pod_shapes: list[PodShape] = []

    @property
    def waits(self) -> bool:
        """Whether the pod's or gang's minimum is not on nodes and would not be placed now."""
        return self.state.waits and self.forecast is not PlacementForecast.STARTS_NOW

    @property
    def brief(self) -> str:
        """Message with counts and without names of objects; "" for a reason without such a text."""
        needed = self.placeable + self.missing
        if self.reason == NOT_ENOUGH_MEMBERS:
            needed = self.minimum
        return brief_text(
            self.reason,
            needed=needed,
            placeable=self.placeable,
            members=needed - self.missing,
            nodes=self.nodes,
        )

    def append(self, sentence: str) -> None:
        """Add a sentence, if it is not empty, to the answer's message."""
        if sentence:
            # Verdicts about nodes end with a full stop.
            self.message = "; ".join(part for part in (self.message.removesuffix("."), sentence) if part)


class GangSize(msgspec.Struct, omit_defaults=True):
    """Current and permitted size of a gang, in members.

    - `placed`: members on nodes; `changed`: time at which the last of them was bound.
    - `desired`: members that its owner has created; `maximum`: members that its owner declares, 0 if not declared.
    - `expected`: members for which room is held until `expected_until`.
    """

    minimum: int
    placed: int
    desired: int
    maximum: int = 0
    changed: str = ""
    expected: int = 0
    expected_until: str = ""


class GroupLine(msgspec.Struct):
    """State of one gang of a composite, as in the answer about that gang."""

    name: str
    state: GangState
    message: str
