"""Review of an admission request: the rules of the path, then the right to use the named queues."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.admission import queues
from phalanx.admission.context import AdmissionContext, parent_of
from phalanx.admission.fields import Json, PatchBuilder, mapping, text
from phalanx.admission.queue_rights import queues_named, queues_to_ask_for, refusal_of_use
from phalanx.admission.quota_reservations import QuotaReservationCheck
from phalanx.admission.webhook.cluster_view import AdmissionView
from phalanx.admission.webhook.review import Denial, ReviewRequest
from phalanx.admission.webhook.routes import QUOTA_RESERVATIONS, Route


class ReviewOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the admission review. `queue_rights`: only users with the right can use a queue.
    `protect_busy_queues`: queues with unfinished groups cannot be deleted."""

    queue_rights: bool = False
    protect_busy_queues: bool = False


class AdmissionReviewer:
    """Reviewer of admission requests. Raises ApiError or ConnectionLost if the cluster does not answer."""

    def __init__(self, view: AdmissionView, options: ReviewOptions, reservations: QuotaReservationCheck) -> None:
        self._view = view
        self._reservations = reservations
        self._options = options

    async def patch(self, route: Route, request: ReviewRequest) -> list[dict[str, Any]]:
        """Return the JSON patch that adds the defaults to the object of an admission request.

        An update can drop the defaults of the creation: a second apply of an unchanged manifest does. An object
        that was created without them stays without, because most fields of a job cannot change.
        """
        document = request.object
        if route.defaults is None or document is None or request.sub_resource:
            return []
        if request.operation not in route.operations:
            return []
        context = await self._view.context(request.namespace)
        if request.operation != "UPDATE":
            return route.defaults(_with_names(document, request), context).patch
        old = request.old_object
        if old is None:
            return []
        built = PatchBuilder(document)
        if not route.defaults(_with_names(old, request), context).patch:
            built = route.defaults(_with_names(document, request), context)
        if route.preserve is not None:
            route.preserve(built, old)
        return built.patch

    async def denial(self, route: Route, request: ReviewRequest) -> Denial | None:
        """Return the denial of an admission request, None if it is allowed."""
        if route.validate is None or request.operation not in route.operations:
            return None
        if request.sub_resource and (route.subject != "pods" or request.sub_resource != "status"):
            return None
        if request.operation == "DELETE":
            return await self._denial_of_deletion(request)
        if request.object is None:
            return Denial("the request has no object")
        if route is QUOTA_RESERVATIONS:
            return await self._denial_of_quota(request, request.object)
        document, old = _with_names(request.object, request), request.old_object
        if request.sub_resource:
            # A status has no rules, but its metadata can name a queue.
            if not self._options.queue_rights:
                return None
            context = await self._view.context(request.namespace)
            return await self._denial_of_use(route, request, document, context)
        named = queues_named(_resource(route, request), document) if route.names_queues else set[str]()
        if route.subject == "queues":
            named = {parent_of(document)}
        context = await self._view.context(request.namespace, sorted(named))
        refusals = route.validate(document, old, context)
        if refusals:
            return Denial(" ".join(refusals))
        if self._options.queue_rights and route.names_queues:
            return await self._denial_of_use(route, request, document, context)
        return None

    async def _denial_of_use(
        self, route: Route, request: ReviewRequest, document: Json, context: AdmissionContext
    ) -> Denial | None:
        if (
            route.subject == "pods"
            and mapping(document.get("spec")).get("schedulerName") not in context.scheduler_names
        ):
            return None
        for queue in queues_to_ask_for(_resource(route, request), document, request.old_object, context.namespace):
            if not await self._view.may_use(request.user_info, queue):
                return Denial(refusal_of_use(queue, request.namespace), 403, "Forbidden")
        return None

    async def _denial_of_quota(self, request: ReviewRequest, pod: dict[str, Any]) -> Denial | None:
        if request.dry_run:
            return None  # an admitted pod is recorded in the ledger, and a dry run creates no pod
        refusal = await self._reservations.refusal(request.namespace, request.uid, pod)
        return Denial(refusal, 403, "Forbidden") if refusal else None

    async def _denial_of_deletion(self, request: ReviewRequest) -> Denial | None:
        context = await self._view.context("")
        if self._options.protect_busy_queues:
            context = await self._view.with_unfinished_groups(context, request.name)
        refusals = queues.validate_deletion(request.name, context)
        return Denial(" ".join(refusals)) if refusals else None


def _resource(route: Route, request: ReviewRequest) -> str:
    return route.resources[0] if len(route.resources) == 1 else str(request.resource)


def _with_names(document: Json, request: ReviewRequest) -> Json:
    """Return the object with the namespace and name of the request, which an object can omit."""
    meta = mapping(document.get("metadata"))
    name = text(meta.get("name")) or request.name or text(meta.get("generateName")) + "x" * 5
    return {**document, "metadata": {**meta, "namespace": request.namespace, "name": name}}
