"""The kinds of units of a scheduler."""

from __future__ import annotations

from phalanx.scheduling.queue.unit import UnitKinds
from phalanx.scheduling.units.composite import CompositeUnit
from phalanx.scheduling.units.gang_group import GangGroupUnit
from phalanx.scheduling.units.pod import PodUnit

UNIT_KINDS = UnitKinds(PodUnit, GangGroupUnit, CompositeUnit)
