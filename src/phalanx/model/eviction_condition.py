"""Pod condition that carries the fields of an eviction through the API, beside Kubernetes' DisruptionTarget.

DisruptionTarget has the same reason for every eviction by a scheduler. This condition of Phalanx, written by the
same request, has Phalanx's reason, and as JSON the scheduler, the preemptor and the message. It becomes False
together with DisruptionTarget.
"""

from __future__ import annotations

import msgspec

from phalanx.model.decisions import Evict, EvictionReason, eviction_sentence
from phalanx.model.text.decoding import decode_json

EVICTION = "phalanx.dev/Eviction"

# A message contains at most one sentence; Phalanx writes no longer ones.
_LONGEST = 32 * 1024
_LONGEST_WHY = 8 * 1024
_REASONS = {each.value: each for each in EvictionReason}


class _Fields(msgspec.Struct, frozen=True, omit_defaults=True):
    scheduler: str
    preemptor: str = ""
    why: str = ""


class ToldEviction(msgspec.Struct, frozen=True):
    """Eviction as its pod's condition describes it: the scheduler, the preemptor ("" for none), and the reason."""

    scheduler: str
    reason: EvictionReason
    preemptor: str = ""
    why: str = ""

    @property
    def sentence(self) -> str:
        return eviction_sentence(self.reason, self.preemptor, self.why)


def eviction_fields(scheduler: str, evict: Evict | None = None) -> str:
    """Return the message of the eviction condition; without an eviction it contains only the scheduler."""
    fields = _Fields(scheduler)
    if evict is not None:
        fields = _Fields(scheduler, evict.preemptor, evict.message[:_LONGEST_WHY])
    return msgspec.json.encode(fields).decode()


def read_eviction(reason: str, message: str) -> ToldEviction | None:
    """Decode the eviction condition of a pod; return None for a condition that Phalanx cannot have written."""
    found = _REASONS.get(reason)
    if found is None or len(message) > _LONGEST:
        return None
    try:
        fields = decode_json(message, _Fields)
    except msgspec.DecodeError:
        return None
    return ToldEviction(fields.scheduler, found, fields.preemptor, fields.why)
