"""HTTP endpoint of the webhook: one path per kind, health and metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from phalanx.admission.webhook.review import ReviewError, read_review, write_review
from phalanx.admission.webhook.reviewer import AdmissionReviewer
from phalanx.admission.webhook.routes import ROUTES, Route
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.path_access import AccessError, PathAccess

log = logging.getLogger(__name__)

# Limit in bytes: an object and its old state, of at most 3 MiB each in Kubernetes, and a reserve.
MOST_BYTES = 12 * 2**20


class AdmissionMetrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reviews = Counter(
            "phalanx_admission_reviews", "Admission reviews", ["path", "result"], registry=self.registry
        )
        self.duration = Histogram(
            "phalanx_admission_review_duration_seconds",
            "Seconds per admission review",
            ["path"],
            buckets=[0.0005 * 2**step for step in range(14)],
            registry=self.registry,
        )


def application(
    reviewer: AdmissionReviewer,
    metrics: AdmissionMetrics,
    ready: Callable[[], bool],
    access: PathAccess | None = None,
) -> web.Application:
    """Return the webhook's web application. Every request gets an AdmissionReview or an HTTP error, even a
    malformed one."""
    app = web.Application(client_max_size=MOST_BYTES)
    for route in ROUTES:
        app.router.add_post(route.path, _handler(route, reviewer, metrics))
    app.add_routes(probes(metrics, ready, access))
    return app


def probes(
    metrics: AdmissionMetrics, ready: Callable[[], bool], access: PathAccess | None = None
) -> list[web.RouteDef]:
    """Return the routes of health and metrics, which can also have a separate address.

    With `access`, only users with the permission for that path can read metrics; health is public."""

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def is_ready(_: web.Request) -> web.Response:
        is_synced = ready()
        return web.Response(text="ok\n" if is_synced else "not synced\n", status=200 if is_synced else 503)

    async def show(request: web.Request) -> web.Response:
        if access is not None:
            try:
                await access.check(request.headers.get("Authorization", ""), request.path)
            except AccessError as error:
                return web.json_response({"error": str(error)}, status=error.status)
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [
        web.get("/healthz", alive),
        web.get("/livez", alive),
        web.get("/readyz", is_ready),
        web.get("/metrics", show),
    ]


def _handler(
    route: Route, reviewer: AdmissionReviewer, metrics: AdmissionMetrics
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        begin = time.perf_counter()
        result, response = await _answer(route, reviewer, request)
        metrics.reviews.labels(route.path, result).inc()
        metrics.duration.labels(route.path).observe(time.perf_counter() - begin)
        return response

    return handle


async def _answer(route: Route, reviewer: AdmissionReviewer, request: web.Request) -> tuple[str, web.Response]:
    """Review one admission request. Return the result for the metric, and the response."""
    try:
        review = read_review(await request.read())
        if route.defaults is not None:
            patch = await reviewer.patch(route, review)
            return "patched" if patch else "allowed", _json(write_review(review.uid, patch))
        denial = await reviewer.denial(route, review)
        if denial is None:
            return "allowed", _json(write_review(review.uid))
        log.info(
            "%s %s %s/%s denied: %s",
            route.subject,
            review.operation,
            review.namespace,
            review.name,
            denial.message,
        )
        return "denied", _json(write_review(review.uid, denial=denial))
    except web.HTTPRequestEntityTooLarge:
        return "unreadable", web.Response(
            status=413, text=f"the AdmissionReview is longer than {MOST_BYTES} bytes\n"
        )
    except ReviewError as error:
        return "unreadable", web.Response(status=400, text=f"{error}\n")
    except (ApiError, ConnectionLost, ConfigError) as error:
        # The failure policy of the webhook configuration decides about the request.
        log.warning("%s: no answer from the cluster: %s", route.path, error)
        return "failed", web.Response(status=503, text=f"no answer from the cluster: {error}\n")
    except (RecursionError, Exception) as error:
        log.exception("%s: the review failed", route.path)
        return "failed", web.Response(status=500, text=f"{type(error).__name__}: {error}\n")


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
