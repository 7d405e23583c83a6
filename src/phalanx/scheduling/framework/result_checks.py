"""Checks of the results of third-party plugins: an invalid result is an error that names the plugin."""

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
from phalanx.model.text.decoding import quoted
from phalanx.model.verdict import Verdict
from phalanx.scheduling.framework.extension_points import EXTENSION_POINTS, EvictVeto, Victim, Vote
from phalanx.scheduling.framework.load import Load
from phalanx.scheduling.framework.plugin import Plugin, overrides
from phalanx.scheduling.framework.task_buckets import TaskBuckets
from phalanx.scheduling.quota.limits import Limit

MOST_POINTS = 1e9
"""Larger scores are refused: in sums with them, the scores of other plugins would be lost to rounding."""
_MOST_COPIES = 2**31
# A plugin with timers gets at most one cycle per second.
_SHORTEST_NAP = 1.0
_OURS = "phalanx.scheduling."


class PluginResultError(Exception):
    """A plugin returned an invalid result at an extension point."""


class CheckedPoint:
    """Wrapper of a plugin's method at one extension point. A failure handler finds it on the stack and blames the
    plugin.
    """

    def __init__(self, plugin: Plugin, point: str) -> None:
        self.plugin = plugin
        self.point = point
        self.kind: object = None
        self._method: Callable[..., Any] = getattr(plugin, point)
        self._check = _CHECKS.get(point)

    def __call__(self, *args: Any) -> Any:
        try:
            result = self._method(*args)
        except SystemExit as error:
            raise PluginResultError("it wanted to end the process") from error
        return self._check(self, result, args) if self._check is not None else None

    def checked_victims(self, victims: Iterable[object], most: int) -> Iterator[Victim]:
        """Yield the checked victims of a plugin's iterable. More than `most` victims are taken as an endless
        iterable."""
        for number, victim in enumerate(victims):
            if number == most:
                raise PluginResultError(f"expected an end, got more than {most} victims, twice the number of pods")
            if (
                not isinstance(victim, Victim)
                or not isinstance(victim.record, PodRecord)
                or not isinstance(victim.reason, EvictionReason)
                or not isinstance(victim.message, str)
            ):
                raise unexpected("Victim(record, reason, message)", victim)
            yield victim


class CheckedTaskBuckets:
    """Wrapper that checks a plugin's task buckets of one gang."""

    def __init__(self, point: CheckedPoint, groups: TaskBuckets, nodes: int) -> None:
        self.plugin = point.plugin
        self.point = point.point
        self._groups = groups
        self._nodes = nodes

    def group_of(self, record: PodRecord) -> int | None:
        group = self._groups.group_of(record)
        return group if group is None else _whole(group)

    def scores(self, record: PodRecord, placed: Any) -> FloatArray | None:
        scores = self._groups.scores(record, placed)
        return scores if scores is None else _points(scores, (self._nodes,))


def check_results(plugin: Plugin) -> None:
    """Wrap the extension points of a third-party plugin in checks; our plugins run unwrapped."""
    if type(plugin).__module__.startswith(_OURS):
        return
    for point in EXTENSION_POINTS:
        if overrides(plugin, point) and point not in vars(plugin):
            setattr(plugin, point, CheckedPoint(plugin, point))


def unexpected(wanted: str, result: object) -> PluginResultError:
    if isinstance(result, np.ndarray):
        return PluginResultError(f"expected {wanted}, got {result.dtype}{list(result.shape)}")
    return PluginResultError(f"expected {wanted}, got {type(result).__name__} {quoted(result)}"[:300])


def _bools(result: object, rows: int) -> BoolArray:
    if not isinstance(result, np.ndarray) or result.dtype != np.bool_ or result.shape != (rows,):
        raise unexpected(f"bool[{rows}]", result)
    return result


def _points(found: object, shape: tuple[int, ...], relevant: BoolArray | None = None) -> FloatArray:
    """Return a plugin's scores `found` as float64; only `relevant` entries must be finite."""
    wanted = f"float64{list(shape)}"
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iuf" or found.shape != shape:
        raise unexpected(wanted, found)
    sound = np.abs(found) <= MOST_POINTS
    if not (sound if relevant is None else sound | ~relevant).all():
        raise PluginResultError(
            f"expected {wanted} between -1e9 and 1e9, got {quoted(found[~sound].flat[0])} among them"
        )
    result: FloatArray = np.where(sound, found, 0.0).astype(np.float64)
    return result


def _filter(point: CheckedPoint, result: object, args: Any) -> BoolArray:
    return _bools(result, _count(args))


def _max_copies(point: CheckedPoint, found: object, args: Any) -> IntArray:
    rows = _count(args)
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iu" or found.shape != (rows,):
        raise unexpected(f"int64[{rows}]", found)
    if (found < 0).any():
        raise PluginResultError(f"expected int64[{rows}] of at least 0, got {quoted(found.min())} among them")
    result: IntArray = np.minimum(found, _MOST_COPIES).astype(np.int64)
    return result


def _pre_bind_check(point: CheckedPoint, allowed: object, args: Any) -> bool:
    if not isinstance(allowed, bool | np.bool_):
        raise unexpected("True or False", allowed)
    pod_class, nodes, row = args
    if not allowed and point.plugin.filter(pod_class, nodes, np.array([row])).any():
        # Otherwise the node would be chosen again without end.
        raise PluginResultError("expected filter to exclude the nodes that pre_bind_check has refused")
    return bool(allowed)


def _explain(point: CheckedPoint, parts: object, args: Any) -> list[tuple[str, BoolArray]]:
    wanted = "list[(str, bool[rows])]"
    if not isinstance(parts, list | tuple):
        raise unexpected(wanted, parts)
    for part in parts:
        if not isinstance(part, tuple) or len(part) != 2 or not isinstance(part[0], str):
            raise unexpected(wanted, part)
        _bools(part[1], _count(args))
    return list(parts)


def _static_score(point: CheckedPoint, scores: object, args: Any) -> FloatArray | None:
    return scores if scores is None else _points(scores, args[2].shape, args[2])


def _score(point: CheckedPoint, score: Any, args: Any) -> FloatArray | float:
    load: Load = args[1]
    if _is_number(score):
        return float(_points(np.array([float(score)]), (1,))[0])
    rows = len(load.nodes.alive[load.rows])
    if load.copies is None:
        return _points(score, (rows,))
    depth = len(load.copies)
    if isinstance(score, np.ndarray) and score.shape in ((rows,), (rows, 1)):
        # the same score for any number of copies
        return np.broadcast_to(_points(score.reshape(rows, 1), (rows, 1)), (rows, depth))
    return _points(score, (rows, depth))


def _key(point: CheckedPoint, key: object, args: Any) -> object:
    kind = _kind(key)
    if point.kind is None:
        point.kind = kind
    if not _comparable(kind, point.kind):
        raise PluginResultError(f"its keys are not comparable with each other, for example {quoted(key)}"[:300])
    return key


def _kind(key: object) -> object:
    if isinstance(key, tuple):
        return tuple(map(_kind, key))
    if isinstance(key, Real) and key == key:
        return Real
    if isinstance(key, str):
        return str
    raise unexpected("a number, a string, or a tuple of these", key)


def _comparable(one: object, other: object) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(map(_comparable, one, other))
    return one is other


def _amounts(amounts: object) -> dict[str, int]:
    if not isinstance(amounts, Mapping) or not all(isinstance(name, str) for name in amounts):
        raise unexpected("resource -> whole number", amounts)
    return {name: _whole(amount) for name, amount in amounts.items()}


def _is_number(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Real)


def _whole(value: Any, least: int | None = None) -> int:
    if not (_is_number(value) and isinstance(value, Integral)) or (least is not None and value < least):
        raise unexpected("a whole number" if least is None else f"a whole number of at least {least}", value)
    return int(value)


def _time(value: Any) -> float:
    if not _is_number(value) or not isfinite(value):
        raise unexpected("seconds since the epoch", value)
    return float(value)


def _alarm(point: CheckedPoint, time: object, args: Any) -> float | None:
    return time if time is None else max(_time(time), args[0].now + _SHORTEST_NAP)


def _limit(point: CheckedPoint, limit: object, args: Any) -> Limit | None:
    if limit is None:
        return None
    if not isinstance(limit, Limit) or not all(isinstance(text, str) for text in (limit.word, limit.change)):
        raise unexpected("Limit(word, limits) or None", limit)
    return msgspec.structs.replace(limit, limits=_amounts(limit.limits))


def _veto(point: CheckedPoint, veto: object, args: Any) -> EvictVeto | None:
    if veto is None:
        return None
    if not isinstance(veto, EvictVeto) or not isinstance(veto.why, str):
        raise unexpected("EvictVeto(why) or None", veto)
    if veto.until is not None:
        _time(veto.until)
    return veto


def _verdict(point: CheckedPoint, verdict: object, args: Any) -> Verdict | None:
    if verdict is None or (isinstance(verdict, Verdict) and isinstance(verdict.message, str)):
        return verdict
    raise unexpected("Verdict(code, message) or None", verdict)


def _accounts(point: CheckedPoint, accounts: object, args: Any) -> tuple[AccountRecord, ...]:
    if isinstance(accounts, tuple | list) and all(isinstance(account, AccountRecord) for account in accounts):
        return tuple(accounts)
    raise unexpected("tuple[AccountRecord, ...]", accounts)


def _resources(point: CheckedPoint, resources: object, args: Any) -> frozenset[str]:
    if isinstance(resources, frozenset | set) and all(isinstance(resource, str) for resource in resources):
        return frozenset(resources)
    raise unexpected("frozenset[str]", resources)


def _groups(point: CheckedPoint, buckets: object, args: Any) -> TaskBuckets | None:
    if buckets is None:
        return None
    if not all(callable(getattr(buckets, name, None)) for name in ("group_of", "scores")):
        raise unexpected("TaskBuckets or None", buckets)
    return CheckedTaskBuckets(point, buckets, args[0].state.nodes.capacity)  # type: ignore[arg-type]


def _victims(point: CheckedPoint, victims: object, args: Any) -> Iterator[Victim]:
    if not isinstance(victims, Iterable):
        raise unexpected("an iterable of Victim", victims)
    return point.checked_victims(victims, 2 * len(args[0].state.pods) + 1)


def _hashable(point: CheckedPoint, value: object, args: Any) -> object:
    try:
        hash(value)
    except TypeError:
        raise unexpected("something hashable", value) from None
    return value


def _two_texts(point: CheckedPoint, texts: object, args: Any) -> object:
    if texts is None:
        return None
    if isinstance(texts, tuple) and len(texts) == 2 and all(isinstance(text, str) for text in texts):
        return texts
    raise unexpected("(obstacle, change that would help) or None", texts)


def _one_of(wanted: str, *kinds: type) -> Callable[[CheckedPoint, object, Any], object]:
    def check(point: CheckedPoint, value: object, args: Any) -> object:
        if not isinstance(value, kinds):
            raise unexpected(wanted, value)
        return value

    return check


def _count(args: Any) -> int:
    """Return the number of node rows in the arguments (class, nodes, rows) of a plugin's method."""
    return len(args[1].alive[args[2]])


def _some_amounts(point: CheckedPoint, amounts: object, args: Any) -> dict[str, int] | None:
    return None if amounts is None else _amounts(amounts)


_CHECKS: Mapping[str, Callable[[CheckedPoint, Any, Any], Any]] = {
    **dict.fromkeys(("queue_order", "subqueue_order", "gang_order", "pod_order", "victim_order"), _key),
    "subqueues": _accounts,
    "task_buckets": _groups,
    "limit": _limit,
    **dict.fromkeys(("deserved", "nominal_quota", "deserved_with_request"), _some_amounts),
    "declared_resources": _resources,
    "runtime_quota": lambda point, amounts, args: _amounts(amounts),
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
    "max_admissions": lambda point, count, args: _whole(count, least=0),
    "why_not_admitted": _two_texts,
}
"""Checks by extension point; results of missing points are ignored."""
