"""Write the Grafana board, the alerts as a PrometheusRule, and the chart's copies of both.

Run `python deploy/monitoring/generate.py`; a test compares the files with its output.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ALERTS = HERE / "alerts.yaml"
CHART = HERE.parent.parent / "charts" / "phalanx" / "files"
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
_RULE_HEAD = """\
# Generated from alerts.yaml by `python deploy/monitoring/generate.py`; edit alerts.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: phalanx
  labels: {app.kubernetes.io/name: phalanx}
spec:
"""


class Panel(NamedTuple):
    """Panel of the board.

    `queries` are (PromQL, legend); JOB is replaced by the selected job and RATE by the interval of the graph.
    `kind` and `unit` are Grafana's words.
    """

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    description: str = ""
    kind: str = "timeseries"
    width: int = 8
    height: int = 8


def _graph(title: str, query: str, legend: str, unit: str = "short", description: str = "") -> Panel:
    return Panel(title, ((query, legend),), unit, description)


def _stat(title: str, query: str, unit: str = "short", description: str = "") -> Panel:
    return Panel(title, ((query, ""),), unit, description, "stat", 4, 4)


def _times(title: str, metric: str, unit: str = "s", description: str = "") -> Panel:
    """Return a panel with the quantiles of a histogram."""
    rate = f"sum by (le) (rate({metric}_bucket{{JOB}}[RATE]))"
    parts = (0.5, 0.9, 0.99)
    return Panel(
        title,
        tuple((f"histogram_quantile({part}, {rate})", f"p{part * 100:.0f}") for part in parts),
        unit,
        description,
    )


_SECTIONS: dict[str, tuple[Panel, ...]] = {
    "Overview": (
        _stat("Leaders", "sum(leader_election_master_status{JOB})", description="Replicas that hold the lease: 1."),
        _stat(
            "Last cycle",
            "time() - max(phalanx_last_cycle_timestamp_seconds{JOB})",
            "s",
            "Age of the last cycle; it grows while nothing changes.",
        ),
        _stat("Running gangs", 'max(phalanx_gangs{JOB, state="running"})'),
        _stat("Pending gangs", 'max(phalanx_gangs{JOB, state="pending"})'),
        _stat(
            "Partly bound gangs",
            'max(phalanx_gangs{JOB, state="partial"})',
            description="Gangs with members on nodes, but fewer than their minimum: 0 except for moments.",
        ),
        _stat("Unschedulable nodes", 'max(phalanx_nodes{JOB, state="unschedulable"})'),
        _graph(
            "Pending pods",
            "sum by (queue) (scheduler_pending_pods{JOB})",
            "{{queue}}",
            "short",
            "By kube-scheduler's queues: active, backoff, unschedulable, gated.",
        ),
        _graph(
            "Scheduling attempts",
            "sum by (result) (rate(scheduler_schedule_attempts_total{JOB}[RATE]))",
            "{{result}}",
            "ops",
        ),
        _graph("Bindings", "sum by (outcome) (rate(phalanx_bindings_total{JOB}[RATE]))", "{{outcome}}", "ops"),
    ),
    "Queueing": (
        _graph(
            "Pending gangs by reason",
            "topk(10, sum by (reason) (phalanx_pending_gangs{JOB}))",
            "{{reason}}",
            "short",
            "Reasons as in `phalanx why`.",
        ),
        _graph("Pending gangs by queue", "topk(10, sum by (queue) (phalanx_pending_gangs{JOB}))", "{{queue}}"),
        _graph(
            "Age of the oldest pending gang",
            "topk(10, max by (queue) (phalanx_oldest_waiting_gang_seconds{JOB}))",
            "{{queue}}",
            "s",
        ),
    ),
    "Latency": (
        _times("Pod: queue to binding", "scheduler_pod_scheduling_sli_duration_seconds"),
        _times("Gang: creation to start", "phalanx_gang_wait_time_seconds"),
        _times("Gang: first to last binding", "phalanx_gang_bind_span_seconds"),
        _times("Binding: decision to answer", "phalanx_binding_duration_seconds"),
        _times("Attempts per pod", "scheduler_pod_scheduling_attempts", "short"),
        Panel(
            "Queued writes to the API server",
            (
                ("sum by (call_type) (scheduler_pending_async_api_calls{JOB})", "{{call_type}}"),
                ("max(phalanx_api_write_concurrency{JOB})", "concurrency limit"),
            ),
        ),
    ),
    "Evictions": (
        _graph(
            "Evicted pods",
            'sum by (reason) (rate(phalanx_evictions_total{JOB, outcome="evicted"}[RATE]))',
            "{{reason}}",
            "ops",
        ),
        _graph(
            "Failed evictions",
            'sum by (outcome) (rate(phalanx_evictions_total{JOB, outcome!="evicted"}[RATE]))',
            "{{outcome}}",
            "ops",
        ),
        _times("Eviction: answer to deletion of the pod", "phalanx_eviction_duration_seconds"),
        _times("Pods per eviction decision", "phalanx_eviction_victims", "short"),
        _times("Duration of a search for victims", "phalanx_eviction_search_duration_seconds"),
        Panel(
            "Searches for victims, all and failed",
            (
                ("sum(rate(phalanx_eviction_search_duration_seconds_count{JOB}[RATE]))", "searches"),
                ("sum(rate(phalanx_preemption_searches_failed_total{JOB}[RATE]))", "failed"),
            ),
            "ops",
        ),
        _graph(
            "Gangs evicted at least four times within an hour",
            "sum(increase(phalanx_repeated_gang_evictions_total{JOB}[1h]))",
            "decisions",
        ),
        _graph(
            "Nominations",
            "sum by (outcome) (rate(phalanx_nominations_total{JOB}[RATE]))",
            "{{outcome}}",
            "ops",
        ),
    ),
    "Accounts": (
        _graph(
            "Used",
            'topk(15, max by (account) (phalanx_account_resource{JOB, kind="used", resource="$resource"}))',
            "{{account}}",
            description="Of the selected resource, in milli-CPU, bytes or units.",
        ),
        _graph(
            "Pending",
            'topk(15, max by (account) (phalanx_account_resource{JOB, kind="pending", resource="$resource"}))',
            "{{account}}",
        ),
        _graph(
            "Used part of the deserved share",
            'topk(15, max by (account) (phalanx_account_resource{JOB, kind="used", resource="$resource"})'
            ' / max by (account) (phalanx_account_resource{JOB, kind="deserved", resource="$resource"} > 0))',
            "{{account}}",
            "percentunit",
            "Of queues with a deserved share, and quotas with a min.",
        ),
        _graph(
            "Dominant shares",
            "topk(15, max by (account) (phalanx_account_share{JOB}))",
            "{{account}}",
            "percentunit",
            "Largest part of the capacity of a resource that an account uses.",
        ),
        _graph(
            "Largest gang that fits",
            'max by (per_pod) (phalanx_max_available_replicas{JOB, resource="$resource"})',
            "{{per_pod}} each",
            description="Pods that fit now, by request per pod of the selected resource. Fewer large pods at the "
            "same number of small ones means fragmentation.",
        ),
    ),
    "Cycles": (
        _times("Duration of a cycle", "phalanx_cycle_duration_seconds"),
        _graph(
            "Time by stage",
            "sum by (stage) (rate(phalanx_stage_duration_seconds_sum{JOB}[RATE]))",
            "{{stage}}",
            "percentunit",
            "Seconds per second: at 100% the scheduler plans all the time.",
        ),
        Panel(
            "Cycles, all and ended by the time budget",
            (
                ("sum(rate(phalanx_cycle_duration_seconds_count{JOB}[RATE]))", "cycles"),
                ("sum(rate(phalanx_cycle_interrupted_total{JOB}[RATE]))", "interrupted"),
            ),
            "ops",
        ),
        _times("Lag of the event loop", "phalanx_event_loop_lag_seconds"),
        _times("Garbage collection pauses", "phalanx_gc_pause_seconds"),
        _graph("Memory", "process_resident_memory_bytes{JOB}", "{{instance}}", "bytes"),
        _graph(
            "Caught errors within an hour",
            "sum by (part) (increase(phalanx_failures_total{JOB}[1h]))",
            "{{part}}",
        ),
    ),
    "API server": (
        _graph(
            "Requests",
            "sum by (verb, resource) (rate(phalanx_api_requests_total{JOB}[RATE]))",
            "{{verb}} {{resource}}",
            "reqps",
        ),
        _graph(
            "Failed requests",
            'sum by (code, resource) (rate(phalanx_api_requests_total{JOB, code!~"2.."}[RATE]))',
            "{{code}} {{resource}}",
            "reqps",
            "HTTP status codes; 0 without an answer.",
        ),
        _graph(
            "Duration of requests",
            "histogram_quantile(0.99,"
            " sum by (le, verb) (rate(rest_client_request_duration_seconds_bucket{JOB}[RATE])))",
            "p99 {{verb}}",
            "s",
        ),
        _graph(
            "Age of the state",
            "max by (resource) (phalanx_watch_lag_seconds{JOB})",
            "{{resource}}",
            "s",
            "0 while a resource is watched.",
        ),
        _graph(
            "Failed watches",
            "sum by (resource, reason) (rate(phalanx_watch_restarts_total{JOB}[RATE]))",
            "{{resource}} {{reason}}",
            "ops",
        ),
        _graph("Dropped events within an hour", "sum(increase(phalanx_events_dropped_total{JOB}[1h]))", "events"),
    ),
    "Promised starts": (
        _graph(
            "Outcomes within an hour",
            "sum by (outcome) (increase(phalanx_promised_starts_total{JOB}[1h]))",
            "{{outcome}}",
            description="Kept, or the cause of a late or lost start. Unknown is a fault of Phalanx.",
        ),
        _graph(
            "Delays within an hour",
            "sum by (cause) (increase(phalanx_promised_start_lateness_seconds_total{JOB}[1h]))",
            "{{cause}}",
            "s",
        ),
        _graph(
            "Time until the next promised start",
            "min(phalanx_earliest_promised_start_timestamp_seconds{JOB}) - time()",
            "next start",
            "s",
            "Below 0, a promise is past its time.",
        ),
        _graph(
            "Forecast coverage",
            "avg by (basis, quantile) (phalanx_start_forecast_coverage{JOB})",
            "{{basis}} {{quantile}}",
            "percentunit",
            "Part of the last 300 starts not later than the quantile. A good forecast is near the quantile.",
        ),
    ),
    "Cluster": (
        _graph(
            "Use of the cluster by resource",
            'max by (resource) (phalanx_account_resource{JOB, account="root", kind="used"}) '
            '/ max by (resource) (phalanx_account_resource{JOB, account="root", kind="deserved"})',
            "{{resource}}",
            "percentunit",
            "Used amount of all queues as a part of what they can use together.",
        ),
        _graph(
            "Requested by waiting pods, as a part of the cluster",
            'max by (resource) (phalanx_account_resource{JOB, account="root", kind="pending"}) '
            '/ max by (resource) (phalanx_account_resource{JOB, account="root", kind="deserved"})',
            "{{resource}}",
            "percentunit",
        ),
        _graph("Nodes", "max by (state) (phalanx_nodes{JOB})", "{{state}}"),
        _graph("Parts that work", 'max by (part) (phalanx_process_ready{job="phalanx-parts"})', "{{part}}"),
    ),
}


def board() -> dict[str, Any]:
    """Return the board in Grafana's classic model, which every version reads."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, members in _SECTIONS.items():
        place = {"x": 0, "y": top, "w": _WIDTH, "h": 1}
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": place,
                "panels": [],
            }
        )
        top, left, height = top + 1, 0, 0
        for panel in members:
            if left + panel.width > _WIDTH:
                top, left, height = top + height, 0, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            panels.append(_panel(len(panels) + 1, panel, place))
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return {
        "uid": "phalanx",
        "title": "Phalanx",
        "description": "A gang scheduler for Kubernetes. The metrics are described in docs/metrics.md.",
        "tags": ["kubernetes", "scheduler", "phalanx"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": panels,
    }


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _DATASOURCE,
            "expr": query.replace("JOB", 'job=~"$job"').replace("RATE", "$__rate_interval"),
            "legendFormat": legend or "__auto",
        }
        for index, (query, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {},
        "targets": targets,
    }


def _variables() -> list[dict[str, Any]]:
    def labels(name: str, label: str, query: str) -> dict[str, Any]:
        return {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _DATASOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "hide": 0,
        }

    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}
    job = labels("job", "Job", "label_values(phalanx_build_info, job)")
    resource = labels("resource", "Resource", 'label_values(phalanx_account_resource{job=~"$job"}, resource)')
    return [source, job, resource | {"current": {"text": "cpu", "value": "cpu"}}]


def rule() -> str:
    """Return the alerts as a PrometheusRule of the Prometheus operator."""
    return _RULE_HEAD + "".join(f"  {line}\n" if line else "\n" for line in _groups().splitlines())


def _groups() -> str:
    """Return the alerts without the head comment of their file."""
    _, groups, rest = ALERTS.read_text("utf-8").partition("groups:\n")
    return groups + rest


def files() -> dict[Path, str]:
    """Return the content of all generated files by path."""
    text = json.dumps(board(), indent=2) + "\n"
    return {
        HERE / "phalanx-board.json": text,
        HERE / "prometheusrule.yaml": rule(),
        CHART / "board.json": text,
        CHART / "alerts.yaml": _groups(),
    }


if __name__ == "__main__":
    for path, content in files().items():
        path.write_text(content, "utf-8")
