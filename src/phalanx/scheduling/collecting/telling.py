"""Texts about collections for users."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.cluster.state import ClusterState
from phalanx.model.text.counts import first_of
from phalanx.model.text.duration import format_moment
from phalanx.model.text.quantity import format_quantity
from phalanx.scheduling.collecting.collection import Collection

_MINUTE = 60
_DAY = 86_400
_MOST_NAMES = 4
_WORDS = {"nvidia.com/gpu": "GPUs", "amd.com/gpu": "GPUs", "cpu": "CPUs", "pods": "pods"}

NO_ENDS = "it does not collect room: too few pods on its nodes ever end by themselves"


def collection_sentence(state: ClusterState, collection: Collection, now: int) -> str:
    """Return the state of a collection: since when, how much it has, on which nodes, and when it is expected to be
    complete."""
    column = collection.scarcest
    resource = state.space.names[column]
    held, wanted = (int(each[column].sum()) for each in (collection.held, collection.wanted))
    names = _names(state, collection.rows.tolist())
    amounts = f"{format_quantity(held, resource)} of {format_quantity(wanted, resource)}"
    has = f"has {amounts} {_WORDS.get(resource, resource)}"
    sentence = f"collecting since {clock_time(collection.since, now)}; {has} on {first_of(names, _MOST_NAMES)}"
    if not collection.expected:
        return f"{sentence}; some pods there have no known end"
    expected = max(collection.expected, now)
    return f"{sentence}; expected {clock_time(-(-expected // _MINUTE) * _MINUTE, now)}"


def clock_time(moment: int, now: int) -> str:
    """Format seconds since the epoch as the time of day in UTC, with the date unless it is the date of `now`."""
    date, time = format_moment(moment)[:16].split("T")
    return time if moment // _DAY == now // _DAY else f"{date} {time}"


def _names(state: ClusterState, rows: Sequence[int]) -> list[str]:
    return sorted(state.nodes.names[row] for row in rows)
