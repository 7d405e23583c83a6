"""The condition that carries an eviction's fields through the API, beside Kubernetes' DisruptionTarget.

DisruptionTarget has Kubernetes' word for every eviction by a scheduler. The condition of our own, written by the
same request, has our reason, and as JSON who evicts, for whom and why; it turns False with the other.
"""

from __future__ import annotations

import msgspec

from phalanx.model.decisions import Evict, EvictionReason, eviction_sentence
from phalanx.model.text.decoding import decode_json

EVICTION = "phalanx.dev/Eviction"

# A message may hold a sentence; what is longer was not written by us.
_LONGEST = 32 * 1024
_LONGEST_WHY = 8 * 1024
_REASONS = {each.value: each for each in EvictionReason}


class _Fields(msgspec.Struct, frozen=True, omit_defaults=True):
    scheduler: str
    preemptor: str = ""
    why: str = ""


class ToldEviction(msgspec.Struct, frozen=True):
    """An eviction as its pod tells it: by which scheduler, for whom ("" for nobody in particular), and why."""

    scheduler: str
    reason: EvictionReason
    preemptor: str = ""
    why: str = ""

    @property
    def sentence(self) -> str:
        return eviction_sentence(self.reason, self.preemptor, self.why)


def eviction_fields(scheduler: str, evict: Evict | None = None) -> str:
    """Return the condition's message; without an eviction it tells the scheduler only."""
    fields = _Fields(scheduler)
    if evict is not None:
        fields = _Fields(scheduler, evict.preemptor, evict.message[:_LONGEST_WHY])
    return msgspec.json.encode(fields).decode()


def read_eviction(reason: str, message: str) -> ToldEviction | None:
    """Read the condition back; None for what we cannot have written."""
    found = _REASONS.get(reason)
    if found is None or len(message) > _LONGEST:
        return None
    try:
        fields = decode_json(message, _Fields)
    except msgspec.DecodeError:
        return None
    return ToldEviction(fields.scheduler, found, fields.preemptor, fields.why)
