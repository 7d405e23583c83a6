"""Creation of the objects of a submission, after the checks that a webhook would make."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from phalanx.model.text.decoding import quoted
from phalanx.orders.errors import InvalidRequestError, OrderError
from phalanx.orders.submission.job_request import GPU
from phalanx.orders.submission.manifests import VOLCANO_JOB, group_of, label

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.kube.discovery import Discovery

Json = dict[str, Any]

# Bytes below which a memory request lacks its unit: no container starts with less.
_LEAST_MEMORY = 1 << 20


def amounts(cpu: str | None, memory: str | None, gpu: str | None) -> dict[str, str]:
    """Return the requests of a pod; `gpu` is a number or RESOURCE=NUMBER. Raises InvalidRequestError."""
    from phalanx.model.text.quantity import QuantityError, parse_quantity

    resource, _, count = (gpu or "").rpartition("=")
    fields = {"cpu": ("cpu", cpu), "memory": ("memory", memory), resource or GPU: ("gpu", gpu and count)}
    requests = {}
    for name, (field, amount) in fields.items():
        if not amount:
            continue
        try:
            thousandths = parse_quantity(amount, 1000)
        except QuantityError as error:
            problem = "; write an amount such as 1, 500m or 4Gi"
            raise InvalidRequestError(field, repr(amount), problem) from error
        if thousandths < 0:
            raise InvalidRequestError(field, repr(amount), ": must not be negative")
        if name == "memory" and 0 < thousandths < _LEAST_MEMORY * 1000:
            problem = f": that is {-(-thousandths // 1000)} bytes; write a unit, such as 4Gi"
            raise InvalidRequestError(field, repr(amount), problem)
        if "/" in name and thousandths % 1000:
            raise InvalidRequestError(field, repr(amount), f": {name} must be a whole number")
        requests[name] = amount
    return requests


def refuse_bad_job(document: Json) -> None:
    """Validate a job by the webhook's rules before anything is created. Raises OrderError."""
    from phalanx.admission.context import AdmissionContext
    from phalanx.admission.jobs import validate

    if (group_of(document), document["kind"]) != (VOLCANO_JOB, "Job"):
        return
    refusals = validate(document, None, AdmissionContext())
    if refusals:
        raise OrderError(f"job {quoted(document['metadata'].get('name'))}: {' '.join(refusals)}")


async def create_all(
    client: KubeClient,
    documents: list[Json],
    namespace: str,
    created_one: Callable[[Json], object] = lambda document: None,
) -> list[Json]:
    """Create the submitted objects in order and return them; `created_one` is called after each.

    Raises OrderError, which names the objects created before the failure.
    """
    from phalanx.kube.discovery import discover
    from phalanx.kube.errors import ApiError, ConnectionLost
    from phalanx.orders.submission.known_references import refuse_unknown_names

    served = await discover(client)
    paths = [_collection(served, document, namespace) for document in documents]
    namespaces = {path.partition("/namespaces/")[2].partition("/")[0] for path in paths} - {""}
    await refuse_unknown_names(client, documents, sorted(namespaces))
    created: list[Json] = []
    for path, document in zip(paths, documents, strict=True):
        try:
            created.append(await client.create(path, document))
        except (ApiError, ConnectionLost) as error:
            done = ", ".join(label(other) for other in created)
            more = f" (already created: {done})" if done else ""
            raise OrderError(f"{label(document)} was not created: {_reason(error)}{more}") from error
        created_one(created[-1])
    return created


def _reason(error: Exception) -> str:
    status = getattr(error, "status", None)
    if status == 409:
        return "the name already exists; choose another name (see phalanx job list)"
    if status == 404 and "namespaces" in str(error):
        return f"{getattr(error, 'message', error)}; create the namespace first"
    return str(getattr(error, "message", error))


def _collection(served: Discovery, document: Json, namespace: str) -> str:
    group, _, version = document["apiVersion"].rpartition("/")
    kinds = served.find_kind(group, document["kind"])
    resource = next((kind for kind in kinds if kind.version == version), None)
    if resource is None:
        raise OrderError(unknown_kind(document["apiVersion"], document["kind"], bool(kinds)))
    return resource.path(document["metadata"].get("namespace") or namespace if resource.namespaced else None)


def unknown_kind(api_version: str, kind: str, other_versions: bool = False) -> str:
    """Return the message for a submitted kind that the cluster does not have."""
    text = f"the cluster has no kind {kind} of {api_version}"
    if other_versions:
        return f"{text}, but another version; set that version in apiVersion"
    if ".volcano.sh/" in api_version:
        return f"{text}; install it with: phalanx install"
    return f"{text}; install its operator"


def job_reference(document: Json) -> tuple[str, str, str] | None:
    """Return (kind as in `phalanx job`, namespace, name) of a submitted job; None for other objects."""
    from phalanx.reports.jobs.kinds import kind_of

    kind = kind_of(document)
    return (kind, document["metadata"].get("namespace", ""), document["metadata"]["name"]) if kind else None
