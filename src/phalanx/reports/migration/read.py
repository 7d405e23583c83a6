"""Sources of another scheduler's objects: a cluster, which is only read, or manifest files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from phalanx.dialects.reader import decode_object
from phalanx.kube.causes import cause_text
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS, PRIORITY_CLASSES
from phalanx.kube.discovery import Discovery, discover
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.kube.wire import read_page
from phalanx.model.text.yaml_text import decode_yaml_all
from phalanx.reports.migration.examine import NO_OBJECT, Examiner, is_object
from phalanx.reports.migration.foreign import FOREIGN_KINDS, system_of
from phalanx.reports.migration.readers import Readers
from phalanx.reports.migration.steps import Webhook, read_webhook
from phalanx.reports.migration.templates import NATIVE_GROUPS, grouped_kinds

PAGE = 500
_CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
_ADMISSION = "admissionregistration.k8s.io"
_WEBHOOKS = (
    (Resource(_ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False), True),
    (Resource(_ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False), False),
)
# Workload kinds with a template that names the scheduler, even without pods at present.
_WORKLOADS = (
    Resource("apps", "v1", "deployments", "Deployment"),
    Resource("apps", "v1", "statefulsets", "StatefulSet"),
    Resource("apps", "v1", "daemonsets", "DaemonSet"),
    Resource("apps", "v1", "replicasets", "ReplicaSet"),
    Resource("batch", "v1", "jobs", "Job"),
    Resource("batch", "v1", "cronjobs", "CronJob"),
)


class Source(msgspec.Struct):
    """Source of another scheduler's objects. `missing` names unreadable kinds with the reason."""

    examiner: Examiner
    webhooks: list[Webhook] = []
    missing: list[str] = []


def read_files(paths: list[Path], source: Source) -> None:
    for path in paths:
        for file in sorted(_files(path)):
            try:
                for at, document in enumerate(decode_yaml_all(file.read_text(encoding="utf-8")), 1):
                    if is_object(document):
                        source.examiner.add(document)
                    elif document is not None:
                        source.missing.append(f"{file}: document {at} is {NO_OBJECT}")
            except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
                source.missing.append(f"{file}: {cause_text(error)}")


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for suffix in ("*.yaml", "*.yml", "*.json"):
            yield from path.rglob(suffix)
    else:
        yield path


async def read_cluster_objects(client: KubeClient, source: Source, namespace: str | None) -> None:
    """Read another scheduler's objects from the cluster. Unserved kinds are skipped, forbidden kinds are named in
    `missing`."""
    served = await discover(client)
    source.missing += [f"{name}: {why}" for name, why in sorted(served.degraded.items()) if system_of(name)]
    for resource in (*_foreign(served), *_operators(served), *_WORKLOADS, PODS, _CONFIG_MAPS, PRIORITY_CLASSES):
        unread = len(source.missing)
        async for document in read_documents(client, resource, source.missing, namespace):
            source.examiner.add(document)
        if len(source.missing) > unread or (namespace and resource.namespaced):
            source.examiner.references.partial.add(resource.kind)
    for resource, mutating in _WEBHOOKS:
        async for document in read_documents(client, resource, source.missing, None):
            source.webhooks.append(read_webhook(document, mutating))


def _foreign(served: Discovery) -> list[Resource]:
    """Return all served kinds of other schedulers' systems, each once."""
    known = {*Readers().kinds, *FOREIGN_KINDS}
    return [
        resource
        for resource in _listed(served)
        if system_of(resource.group)
        and ((resource.group, resource.kind) in known or resource.kind not in _TRANSIENT)
    ]


def _operators(served: Discovery) -> list[Resource]:
    """Return the served kinds of operators with templates that name a scheduler."""
    kinds = {kind for kind in grouped_kinds() if kind[0] not in NATIVE_GROUPS and not system_of(kind[0])}
    return [resource for resource in _listed(served) if (resource.group, resource.kind) in kinds]


def _listed(served: Discovery) -> list[Resource]:
    """Return the served kinds that can be listed, each in the server's preferred version."""
    preferred: dict[tuple[str, str], Resource] = {}
    for entry in served.served:
        if "/" not in entry.resource.plural and "list" in entry.verbs:
            preferred.setdefault((entry.resource.group, entry.resource.plural), entry.resource)
    return list(preferred.values())


# Created and deleted by the systems themselves.
_TRANSIENT = frozenset({"BindRequest", "NodeMetric", "NodeShard"})


async def read_documents(client: KubeClient, resource: Resource, missing: list[str], namespace: str | None) -> Any:
    token: str | None = None
    path = resource.path(namespace) if namespace and resource.namespaced else resource.path()
    while True:
        try:
            page = read_page(await client.request("GET", path, params={"limit": PAGE, "continue": token}))
        except ApiError as error:
            if error.status not in (403, 404, 405, 410):
                raise
            if error.status in (403, 410):
                missing.append(f"{resource.plural}.{resource.group or 'core'}: {error.message}")
            return
        for item in page.items:
            try:
                document = decode_object(bytes(item))
            except msgspec.DecodeError as error:
                missing.append(f"{resource.plural}.{resource.group or 'core'}: {error}")
                continue
            yield {"apiVersion": resource.api_version, "kind": resource.kind, **document}
        token = page.token
        if not token:
            return
