"""What plugins of third parties answer is checked where it comes in: a wrong answer is an error that names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from numbers import Integral, Real
from typing import Any

import msgspec
import numpy as np

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.model.decisions import EvictionReason
from phalanx.model.verdict import Verdict
from phalanx.scheduling.framework.extension_points import EXTENSION_POINTS, EvictVeto, Victim, Vote
from phalanx.scheduling.framework.load import Load
from phalanx.scheduling.framework.plugin import Plugin, overrides
from phalanx.scheduling.framework.task_buckets import TaskBuckets
from phalanx.scheduling.quota.limits import Limit

MOST_POINTS = 1e9
"""Scores beyond are refused: in sums with them those of other plugins would be lost."""
_MOST_COPIES = 2**31
# Who asks for cycles at certain times gets one a second at most.
_SHORTEST_NAP = 1.0
_OURS = "phalanx.scheduling."


class PluginResultError(Exception):
    """A plugin answered with something that has no meaning at that extension point."""


class CheckedPoint:
    """Stands in a plugin's place at one point; whoever looks for the culprit of a failure finds it on the stack."""

    def __init__(self, plugin: Plugin, point: str) -> None:
        self.plugin = plugin
        self.point = point
        self.kind: object = None
        self._ask: Callable[..., Any] = getattr(plugin, point)
        self._check = _CHECKS.get(point)

    def __call__(self, *asked: Any) -> Any:
        try:
            found = self._ask(*asked)
        except SystemExit as error:
            raise PluginResultError("it wanted to end the process") from error
        return self._check(self, found, asked) if self._check is not None else None

    def each(self, found: Iterable[object], most: int) -> Iterator[Victim]:
        """What an iterable gives, checked one by one; one that gives more than `most` never ends."""
        for number, victim in enumerate(found):
            if number == most:
                raise PluginResultError(f"expected an end: gave more than {most}, twice the pods that there are")
            if (
                not isinstance(victim, Victim)
                or not isinstance(victim.record, PodRecord)
                or not isinstance(victim.reason, EvictionReason)
                or not isinstance(victim.message, str)
            ):
                raise unexpected("Victim(record, reason, message)", victim)
            yield victim


class CheckedTaskBuckets:
    """What a plugin gave as the groups of one gang."""

    def __init__(self, point: CheckedPoint, groups: TaskBuckets, nodes: int) -> None:
        self.plugin = point.plugin
        self.point = point.point
        self._groups = groups
        self._nodes = nodes

    def group_of(self, record: PodRecord) -> int | None:
        found = self._groups.group_of(record)
        return found if found is None else _whole(found)

    def scores(self, record: PodRecord, placed: Any) -> FloatArray | None:
        found = self._groups.scores(record, placed)
        return found if found is None else _points(found, (self._nodes,))


def check_results(plugin: Plugin) -> None:
    """Has the answers of a plugin that is not ours checked from now on; ours cost nothing."""
    if type(plugin).__module__.startswith(_OURS):
        return
    for point in EXTENSION_POINTS:
        if overrides(plugin, point) and point not in vars(plugin):
            setattr(plugin, point, CheckedPoint(plugin, point))


def unexpected(wanted: str, found: object) -> PluginResultError:
    if isinstance(found, np.ndarray):
        return PluginResultError(f"expected {wanted}, got {found.dtype}{list(found.shape)}")
    return PluginResultError(f"expected {wanted}, got {type(found).__name__} {found!r}"[:300])


def _bools(found: object, rows: int) -> BoolArray:
    if not isinstance(found, np.ndarray) or found.dtype != np.bool_ or found.shape != (rows,):
        raise unexpected(f"bool[{rows}]", found)
    return found


def _points(found: object, shape: tuple[int, ...], relevant: BoolArray | None = None) -> FloatArray:
    """As float64; only the entries that are `relevant` need be numbers that one can add."""
    wanted = f"float64{list(shape)}"
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iuf" or found.shape != shape:
        raise unexpected(wanted, found)
    sound = np.abs(found) <= MOST_POINTS
    if not (sound if relevant is None else sound | ~relevant).all():
        raise PluginResultError(f"expected {wanted} between -1e9 and 1e9, got {found[~sound].flat[0]!r} among them")
    result: FloatArray = np.where(sound, found, 0.0).astype(np.float64)
    return result


def _filter(point: CheckedPoint, found: object, asked: Any) -> BoolArray:
    return _bools(found, _count(asked))


def _max_copies(point: CheckedPoint, found: object, asked: Any) -> IntArray:
    rows = _count(asked)
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iu" or found.shape != (rows,):
        raise unexpected(f"int64[{rows}]", found)
    if (found < 0).any():
        raise PluginResultError(f"expected int64[{rows}] of at least 0, got {found.min()!r} among them")
    result: IntArray = np.minimum(found, _MOST_COPIES).astype(np.int64)
    return result


def _pre_bind_check(point: CheckedPoint, found: object, asked: Any) -> bool:
    if not isinstance(found, bool | np.bool_):
        raise unexpected("True or False", found)
    pod_class, nodes, row = asked
    if not found and point.plugin.filter(pod_class, nodes, np.array([row])).any():
        # It would be chosen again for ever.
        raise PluginResultError("expected filter to rule out from now on what pre_bind_check has refused")
    return bool(found)


def _explain(point: CheckedPoint, found: object, asked: Any) -> list[tuple[str, BoolArray]]:
    wanted = "list[(str, bool[rows])]"
    if not isinstance(found, list | tuple):
        raise unexpected(wanted, found)
    for part in found:
        if not isinstance(part, tuple) or len(part) != 2 or not isinstance(part[0], str):
            raise unexpected(wanted, part)
        _bools(part[1], _count(asked))
    return list(found)


def _static_score(point: CheckedPoint, found: object, asked: Any) -> FloatArray | None:
    return found if found is None else _points(found, asked[2].shape, asked[2])


def _score(point: CheckedPoint, found: Any, asked: Any) -> FloatArray | float:
    load: Load = asked[1]
    if _is_number(found):
        return float(_points(np.array([float(found)]), (1,))[0])
    rows = len(load.nodes.alive[load.rows])
    if load.copies is None:
        return _points(found, (rows,))
    depth = len(load.copies)
    if isinstance(found, np.ndarray) and found.shape in ((rows,), (rows, 1)):
        # The same for any number of copies.
        return np.broadcast_to(_points(found.reshape(rows, 1), (rows, 1)), (rows, depth))
    return _points(found, (rows, depth))


def _key(point: CheckedPoint, found: object, asked: Any) -> object:
    kind = _kind(found)
    if point.kind is None:
        point.kind = kind
    if not _comparable(kind, point.kind):
        raise PluginResultError(f"its keys do not compare with each other: {found!r} is one of them"[:300])
    return found


def _kind(key: object) -> object:
    if isinstance(key, tuple):
        return tuple(map(_kind, key))
    if isinstance(key, Real) and key == key:
        return Real
    if isinstance(key, str):
        return str
    raise unexpected("a number, a text, or a tuple of such", key)


def _comparable(one: object, other: object) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(map(_comparable, one, other))
    return one is other


def _amounts(found: object) -> dict[str, int]:
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise unexpected("resource -> whole number", found)
    return {name: _whole(amount) for name, amount in found.items()}


def _is_number(found: Any) -> bool:
    return type(found) is not bool and isinstance(found, Real)


def _whole(found: Any, least: int | None = None) -> int:
    if not (_is_number(found) and isinstance(found, Integral)) or (least is not None and found < least):
        raise unexpected("a whole number" if least is None else f"a whole number of at least {least}", found)
    return int(found)


def _time(found: Any) -> float:
    if not _is_number(found) or not isfinite(found):
        raise unexpected("seconds since the epoch", found)
    return float(found)


def _alarm(point: CheckedPoint, found: object, asked: Any) -> float | None:
    return found if found is None else max(_time(found), asked[0].now + _SHORTEST_NAP)


def _limit(point: CheckedPoint, found: object, asked: Any) -> Limit | None:
    if found is None:
        return None
    if not isinstance(found, Limit) or not all(isinstance(text, str) for text in (found.word, found.change)):
        raise unexpected("Limit(word, limits) or None", found)
    return msgspec.structs.replace(found, limits=_amounts(found.limits))


def _veto(point: CheckedPoint, found: object, asked: Any) -> EvictVeto | None:
    if found is None:
        return None
    if not isinstance(found, EvictVeto) or not isinstance(found.why, str):
        raise unexpected("EvictVeto(why) or None", found)
    if found.until is not None:
        _time(found.until)
    return found


def _verdict(point: CheckedPoint, found: object, asked: Any) -> Verdict | None:
    if found is None or (isinstance(found, Verdict) and isinstance(found.message, str)):
        return found
    raise unexpected("Verdict(code, message) or None", found)


def _accounts(point: CheckedPoint, found: object, asked: Any) -> tuple[AccountRecord, ...]:
    if isinstance(found, tuple | list) and all(isinstance(each, AccountRecord) for each in found):
        return tuple(found)
    raise unexpected("tuple[AccountRecord, ...]", found)


def _resources(point: CheckedPoint, found: object, asked: Any) -> frozenset[str]:
    if isinstance(found, frozenset | set) and all(isinstance(each, str) for each in found):
        return frozenset(found)
    raise unexpected("frozenset[str]", found)


def _groups(point: CheckedPoint, found: object, asked: Any) -> TaskBuckets | None:
    if found is None:
        return None
    if not all(callable(getattr(found, name, None)) for name in ("group_of", "scores")):
        raise unexpected("TaskBuckets or None", found)
    return CheckedTaskBuckets(point, found, asked[0].state.nodes.capacity)  # type: ignore[arg-type]


def _victims(point: CheckedPoint, found: object, asked: Any) -> Iterator[Victim]:
    if not isinstance(found, Iterable):
        raise unexpected("an iterable of Victim", found)
    return point.each(found, 2 * len(asked[0].state.pods) + 1)


def _hashable(point: CheckedPoint, found: object, asked: Any) -> object:
    try:
        hash(found)
    except TypeError:
        raise unexpected("something hashable", found) from None
    return found


def _two_texts(point: CheckedPoint, found: object, asked: Any) -> object:
    if found is None:
        return None
    if isinstance(found, tuple) and len(found) == 2 and all(isinstance(text, str) for text in found):
        return found
    raise unexpected("(what is in the way, what would help) or None", found)


def _one_of(wanted: str, *kinds: type) -> Callable[[CheckedPoint, object, Any], object]:
    def check(point: CheckedPoint, found: object, asked: Any) -> object:
        if not isinstance(found, kinds):
            raise unexpected(wanted, found)
        return found

    return check


def _count(asked: Any) -> int:
    """How many rows are asked about: by (class, nodes, rows)."""
    return len(asked[1].alive[asked[2]])


def _some_amounts(point: CheckedPoint, found: object, asked: Any) -> dict[str, int] | None:
    return None if found is None else _amounts(found)


_CHECKS: Mapping[str, Callable[[CheckedPoint, Any, Any], Any]] = {
    **dict.fromkeys(("queue_order", "subqueue_order", "gang_order", "pod_order", "victim_order"), _key),
    "subqueues": _accounts,
    "task_buckets": _groups,
    "limit": _limit,
    **dict.fromkeys(("deserved", "nominal_quota", "deserved_with_request"), _some_amounts),
    "declared_resources": _resources,
    "runtime_quota": lambda point, found, asked: _amounts(found),
    "blocked": _verdict,
    **dict.fromkeys(("recheck_at", "next_wake"), _alarm),
    "evict_veto": _veto,
    "victims": _victims,
    **dict.fromkeys(("time_key", "admission_key"), _hashable),
    "pre_filter": _one_of("str or None", str, type(None)),
    "filter": _filter,
    "max_copies": _max_copies,
    "pre_bind_check": _pre_bind_check,
    "explain": _explain,
    "static_score": _static_score,
    "score": _score,
    **dict.fromkeys(("admit", "reserve_start", "backfill"), _one_of("Vote", Vote)),
    "max_admissions": lambda point, found, asked: _whole(found, least=0),
    "why_not_admitted": _two_texts,
}
"""By extension point; those that are missing answer nothing."""
