"""Metrics of requests to the API server, counted by resource and outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from phalanx.daemon.metrics.cluster_counts import OTHER
from phalanx.daemon.metrics.distribution import BucketCounts, Distributions
from phalanx.daemon.metrics.exposition import labels, lines_of

#: Maximum number of combinations with series of their own; further ones count as OTHER.
_MOST_SERIES = 1000
_WATCH = "WATCH"
_BINDING = "/binding"
#: Names of kube-scheduler for its asynchronous calls.
_CALL_TYPES = {("POST", "pods/binding"): "pod_binding", ("PATCH", "pods/status"): "pod_status_patch"}


class _Requests:
    """Number and durations of the requests with one method, resource and status."""

    __slots__ = ("calls", "count", "durations")

    def __init__(self, durations: BucketCounts | None, calls: BucketCounts | None) -> None:
        self.count = 0
        self.durations = durations
        self.calls = calls


class ApiRequests:
    """Counters of requests to the API server; `server` is its URL."""

    def __init__(self, registry: CollectorRegistry, server: str) -> None:
        self._host = urlsplit(server).netloc
        self._known: dict[tuple[str, str, int], _Requests] = {}
        self._durations = Distributions("rest_client_request_duration_seconds", registry)
        self._calls = Distributions("scheduler_async_api_call_execution_duration_seconds", registry)

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request to the API server; `method` is WATCH for the start of a watch, `status` 0 without an
        answer."""
        resource = resource_of(path)
        known = self._known.get((method, resource, status)) or self._first(method, resource, status)
        known.count += 1
        if known.durations is not None:
            known.durations.observe(seconds)
        if known.calls is not None:
            known.calls.observe(seconds)

    def _first(self, method: str, resource: str, status: int) -> _Requests:
        if len(self._known) >= _MOST_SERIES:
            resource = OTHER
        call_type = _CALL_TYPES.get((method, resource))
        result = "success" if 200 <= status < 300 else "error"
        return self._known.setdefault(
            (method, resource, status),
            _Requests(
                self._durations.of(method, self._host) if method != _WATCH else None,
                self._calls.of(call_type, result) if call_type is not None else None,
            ),
        )

    def lines(self) -> Iterator[str]:
        by_method: Counter[tuple[str, int]] = Counter()
        for (method, _, status), known in self._known.items():
            by_method["GET" if method == _WATCH else method, status] += known.count
        yield from lines_of(
            "rest_client_requests_total",
            (
                (labels(code=str(status or "<error>"), method=method, host=self._host), count)
                for (method, status), count in by_method.items()
            ),
        )
        yield from lines_of(
            "phalanx_api_requests_total",
            (
                (labels(verb=method.lower(), resource=resource, code=str(status)), known.count)
                for (method, resource, status), known in self._known.items()
            ),
        )
        yield from lines_of(
            "scheduler_async_api_call_execution_total",
            (
                (labels(call_type=call_type, result=result), count)
                for (call_type, result), count in self._calls.counts().items()
            ),
        )


def resource_of(path: str) -> str:
    """Return the plural resource name in an API path, with its subresource ("pods/binding"); "" for other paths."""
    if path.endswith(_BINDING):
        return "pods/binding"  # the most frequent path by far
    parts = path.split("/")
    names = parts[3:] if parts[1] == "api" else parts[4:] if parts[1] == "apis" else []
    if len(names) > 2 and names[0] == "namespaces":
        names = names[2:]
    return f"{names[0]}/{names[2]}" if len(names) > 2 else names[0] if names else ""
