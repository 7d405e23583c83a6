"""APIServices that name a Service, and the addresses of these Services."""

from __future__ import annotations

from typing import Final, NamedTuple

from phalanx_local.objects import Json, dig, mapping, sequence, text
from phalanx_local.registry.api import Api
from phalanx_local.storage.records import Record

API_SERVICES: Final = "apiregistration.k8s.io/apiservices"
_DEFAULT_PORT: Final = 443


class UnresolvedServiceError(Exception):
    """Error for a Service without an address that this process can reach."""


class ServedGroup(NamedTuple):
    """Group version that an APIService serves through a Service."""

    group: str
    version: str
    namespace: str
    service: str
    port: int
    authorities: str
    insecure: bool
    available: bool

    @property
    def server_name(self) -> str:
        """Name in the certificate of the server."""
        return f"{self.service}.{self.namespace}.svc"


def served_group(api: Api, group: str, version: str) -> ServedGroup | None:
    """Return the group version if an APIService serves it through a Service."""
    collection = api.store.collections.get(API_SERVICES)
    record = collection.records.get(("", f"{version}.{group}")) if collection is not None else None
    return _read(record) if record is not None else None


def served_groups(api: Api) -> list[ServedGroup]:
    """Return all group versions that APIServices serve through Services."""
    collection = api.store.collections.get(API_SERVICES)
    records = collection.records.values() if collection is not None else ()
    return [served for record in list(records) if (served := _read(record)) is not None]


def _read(record: Record) -> ServedGroup | None:
    obj = record.load()
    spec = mapping(obj.get("spec"))
    service = mapping(spec.get("service"))
    if not service:
        return None
    port = service.get("port")
    return ServedGroup(
        text(spec.get("group")),
        text(spec.get("version")),
        text(service.get("namespace")),
        text(service.get("name")),
        port if isinstance(port, int) else _DEFAULT_PORT,
        text(spec.get("caBundle")),
        spec.get("insecureSkipTLSVerify") is True,
        is_available(obj),
    )


def is_available(obj: Json) -> bool:
    """Return whether the condition Available of an APIService is True."""
    conditions = sequence(dig(obj, "status", "conditions"))
    return any(
        mapping(item).get("type") == "Available" and mapping(item).get("status") == "True" for item in conditions
    )


def address_of(api: Api, served: ServedGroup) -> str:
    """Return HOST:PORT of a Service. Raise UnresolvedServiceError.

    This cluster has no network for cluster IPs: a Service has the address of its external name, or those of its
    EndpointSlices, as with --enable-aggregator-routing.
    """
    service = api.find("", "services", served.namespace, served.service)
    if service is None:
        raise UnresolvedServiceError(f'service "{served.service}" not found in namespace "{served.namespace}"')
    spec = mapping(service.get("spec"))
    if spec.get("type") == "ExternalName":
        return f"{text(spec.get('externalName'))}:{served.port}"
    for item in api.all("discovery.k8s.io", "endpointslices", served.namespace):
        labels = mapping(mapping(item.get("metadata")).get("labels"))
        if labels.get("kubernetes.io/service-name") != served.service:
            continue
        ports = [mapping(port).get("port") for port in sequence(item.get("ports"))]
        for endpoint in sequence(item.get("endpoints")):
            addresses = sequence(mapping(endpoint).get("addresses"))
            if addresses and ports and dig(endpoint, "conditions", "ready") is not False:
                host = text(addresses[0])
                return f"[{host}]:{ports[0]}" if ":" in host else f"{host}:{ports[0]}"
    raise UnresolvedServiceError(f"service {served.namespace}/{served.service} has no reachable address")
