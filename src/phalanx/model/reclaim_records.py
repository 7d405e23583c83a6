"""Records of gangs that were reclaimed from borrowed room: their JSON form outlives the process."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.model.text.decoding import decode_json

VERSION = 1
_ENCODER = msgspec.json.Encoder(order="deterministic")


class ReclaimedGang(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reclaims of one gang: `times`, and the time of the `last` one. Its room is idle since `idle`, 0 if it is
    not.
    """

    uid: str
    times: int
    last: int
    idle: int = 0


def encode_reclaims(gangs: Iterable[ReclaimedGang], most: int) -> str:
    """Encode the `most` gangs that were reclaimed last."""
    latest = sorted(gangs, key=lambda gang: (-gang.last, gang.uid))[:most]
    return _ENCODER.encode({"version": VERSION, "gangs": sorted(latest, key=lambda gang: gang.uid)}).decode()


def decode_reclaims(text: str) -> tuple[list[ReclaimedGang], str]:
    """Return the stored gangs, and the fault of the text ("" for none)."""
    if not text:
        return [], ""
    try:
        document = decode_json(text.encode("utf-8", "surrogatepass"))
        if not isinstance(document, dict) or document.get("version") != VERSION:
            return [], f"it is not of version {VERSION} and its reclaims are forgotten"
        gangs = msgspec.convert(document.get("gangs"), list[ReclaimedGang])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        return [], f"its reclaims are forgotten: {error}"
    return [gang for gang in gangs if gang.times > 0 and gang.last > 0 and gang.idle >= 0], ""
