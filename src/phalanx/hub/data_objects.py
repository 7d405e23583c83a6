"""Data requirements of gangs: required and preferred data sets, claims on data sources, and objects that load data
first (stage-in).

DataSource and DataSourceClaim are volcano-global's (`datadependency.volcano.sh`): read, never written. A claim
restricts the clusters of its workload to the clusters of the source that matches it by system, type, name and
attributes, as volcano-global's own controller binds it. Unbound claims count too, for installations without that
controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from phalanx.controllers.store import ObjectStore
from phalanx.hub.objects import Json, StoredObject, printable, read_object
from phalanx.kube.client import KubeClient
from phalanx.kube.failures import Failures
from phalanx.kube.paths import Resource
from phalanx.kube.reflector import Reflector
from phalanx.model.text.decoding import quoted
from phalanx.model.text.quantity import QuantityError, parse_quantity

#: Annotations of PodGroups and jobs that users write at the hub: names of data sets, separated by commas.
DATA_SETS = "phalanx.dev/data-sets"
PREFERRED_DATA_SETS = "phalanx.dev/preferred-data-sets"
#: Annotation with the objects that stage data in, as kind/name in the gang's namespace, separated by commas. They
#: must be complete before the gang is dispatched.
STAGE_IN = "phalanx.dev/stage-in"

DATA_SOURCES = Resource("datadependency.volcano.sh", "v1alpha1", "datasources", "DataSource", namespaced=False)
DATA_SOURCE_CLAIMS = Resource("datadependency.volcano.sh", "v1alpha1", "datasourceclaims", "DataSourceClaim")
JOBS = Resource("batch", "v1", "jobs", "Job")
DATA_LOADS = Resource("data.fluid.io", "v1alpha1", "dataloads", "DataLoad")
DATA_SETS_OF_FLUID = Resource("data.fluid.io", "v1alpha1", "datasets", "Dataset")
#: Kinds in STAGE_IN, by the word before the slash.
STAGE_IN_KINDS = {"job": JOBS, "dataload": DATA_LOADS, "dataset": DATA_SETS_OF_FLUID}

_MOST_NAMES = 64
_MOST_MESSAGE = 300


class DataNeeds(msgspec.Struct, frozen=True):
    """Data requirements of a gang for the choice of its cluster.

    `required` and `preferred` are names of data sets. `claimed` has the data source of each claim and the clusters
    that hold it. `waits_for` describes the first incomplete requirement, "" for none; `reason` is its code.
    """

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    claimed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    reason: str = ""
    waits_for: str = ""

    @property
    def anywhere(self) -> bool:
        """Whether the gang has no data requirement, so that any cluster has its data."""
        return not (self.required or self.preferred or self.claimed)


class HeldData(msgspec.Struct, frozen=True):
    """Data sets that a member cluster stores, with their sizes in bytes; 1 for an unknown size."""

    sizes: Mapping[str, int]

    def refusal(self, cluster: str, needs: DataNeeds) -> str:
        """Return the reason why a member cluster lacks required data; "" if it has all."""
        missing = [name for name in needs.required if name not in self.sizes]
        if missing:
            return printable(f"does not hold data set {', '.join(missing)}", _MOST_MESSAGE)
        unavailable = [source for source, clusters in needs.claimed if cluster not in clusters]
        return printable(f"does not hold {', '.join(unavailable)}", _MOST_MESSAGE) if unavailable else ""


def held_data(spec: Json) -> HeldData:
    """Return the data sets that a MemberCluster's spec lists, without unreadable entries."""
    sizes: dict[str, int] = {}
    for entry in spec.get("dataSets") or ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            sizes[entry["name"]] = _size(entry.get("size"))
    return HeldData(sizes)


def bytes_to_move(cluster: HeldData, others: Iterable[HeldData], needs: DataNeeds) -> int:
    """Return the bytes of preferred data sets that the cluster lacks, by the largest reported size of each."""
    missing = [name for name in needs.preferred if name not in cluster.sizes]
    sizes = [held.sizes for held in others] if missing else []
    return sum(max((held[name] for held in sizes if name in held), default=1) for name in missing)


class DataObjects:
    """Data source claims, data sources and stage-in objects of the hub's API; `job` returns a batch Job by
    namespace and name."""

    def __init__(self, job: Callable[[str, str], StoredObject | None]) -> None:
        self._job = job
        self.sources: ObjectStore[StoredObject] = ObjectStore(read_object, index=_identity)
        self.claims: ObjectStore[StoredObject] = ObjectStore(read_object, index=_workload)
        self._loads: ObjectStore[StoredObject] = ObjectStore(read_object)
        self._sets: ObjectStore[StoredObject] = ObjectStore(read_object)

    def reflectors(self, client: KubeClient, failures: Failures) -> Iterator[Reflector[bytes]]:
        """Yield the reflectors of the data objects; the CRDs belong to other projects and are optional."""
        for resource, store in (
            (DATA_SOURCES, self.sources),
            (DATA_SOURCE_CLAIMS, self.claims),
            (DATA_LOADS, self._loads),
            (DATA_SETS_OF_FLUID, self._sets),
        ):
            yield Reflector(client, resource, bytes, store.sink, failures=failures, optional=True)

    def needs(self, api_version: str, kind: str, group: StoredObject) -> DataNeeds:
        """Return the data requirements of a PodGroup or a job."""
        reason, waits_for = "", ""
        for text in _names(group.annotation(STAGE_IN)):
            if waits_for := self._incomplete(group.namespace, text):
                reason = "StageIn"
                break
        claimed: list[tuple[str, tuple[str, ...]]] = []
        for claim in self._claims(api_version, kind, group):
            spec = claim.document.get("spec") or {}
            source_name = (
                f"{printable(spec.get('dataSourceType'), 60)} {printable(spec.get('dataSourceName'), 120)}"
            )
            source = self._source(claim)
            if source is None:
                reason = reason or "DataSourceClaim"
                waits_for = waits_for or f"DataSourceClaim {claim.name}: no DataSource has {source_name}"
            else:
                claimed.append((source_name, _clusters(source)))
        return DataNeeds(
            _names(group.annotation(DATA_SETS)),
            _names(group.annotation(PREFERRED_DATA_SETS)),
            tuple(claimed),
            reason,
            waits_for,
        )

    def _claims(self, api_version: str, kind: str, group: StoredObject) -> list[StoredObject]:
        """Return the data source claims for a workload or its controller, from its own namespace only.

        A user with write access to a namespace can restrict only workloads of that namespace.
        """
        workloads = [(api_version, kind, group.name)]
        owners = group.document["metadata"].get("ownerReferences")
        workloads += [
            (str(owner.get("apiVersion")), str(owner.get("kind")), str(owner.get("name")))
            for owner in (owners if isinstance(owners, list) else ())
            if isinstance(owner, dict) and owner.get("controller") is True
        ]
        claims = [
            claim for workload in workloads for claim in self.claims.of("\0".join((group.namespace, *workload)))
        ]
        return sorted(claims, key=lambda claim: claim.name)

    def _source(self, claim: StoredObject) -> StoredObject | None:
        """Return the data source that a claim is bound to if it matches the claim, else the first match by name."""
        spec = claim.document.get("spec") or {}
        identity = _joined(spec, "system", "dataSourceType", "dataSourceName")
        sources = sorted(self.sources.of(identity), key=lambda source: source.name) if identity else []
        bound = (claim.document.get("status") or {}).get("boundDataSource")
        return next((source for source in sources if source.name == bound), sources[0] if sources else None)

    def _incomplete(self, namespace: str, text: str) -> str:
        """Return the reason why a stage-in object of an annotation entry has not loaded its data; "" if it has."""
        word, _, name = text.partition("/")
        kind = STAGE_IN_KINDS.get(word.lower())
        if kind is None or not name:
            known = ", ".join(f"{kind_name}/NAME" for kind_name in STAGE_IN_KINDS)
            return printable(f"{STAGE_IN}: unknown entry {quoted(text)}; expected {known}", _MOST_MESSAGE)
        label = f"{kind.kind} {printable(name, 100)}"
        if kind is JOBS:
            stage_in_object = self._job(namespace, name)
            return _job_incomplete(label, stage_in_object)
        store = self._loads if kind is DATA_LOADS else self._sets
        stage_in_object = store.get((namespace, name))
        if stage_in_object is None:
            return f"{label}, which loads data for the gang, does not exist"
        phase = (stage_in_object.document.get("status") or {}).get("phase")
        if phase == "Failed":
            return f"{label} has failed to load its data"
        # A Dataset is Bound once its cache can serve; a DataLoad is Complete once its cache is filled.
        done = phase == ("Complete" if kind is DATA_LOADS else "Bound")
        return "" if done else f"{label} has not loaded its data yet ({printable(phase or 'no phase', 40)})"


def _job_incomplete(label: str, job: StoredObject | None) -> str:
    if job is None:
        return f"{label}, which loads data for the gang, does not exist"
    conditions = (job.document.get("status") or {}).get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and condition.get("status") == "True":
            if condition.get("type") == "Complete":
                return ""
            if condition.get("type") == "Failed":
                detail = printable(condition.get("message") or condition.get("reason") or "", 150)
                return f"{label} has failed to load its data: {detail}"
    return f"{label} has not loaded its data yet"


def _identity(source: StoredObject) -> str:
    return _joined(source.document.get("spec") or {}, "system", "type", "name")


def _joined(spec: Json, *keys: str) -> str:
    """Return the identity of a data source or of a claim's target; "" if a part is missing."""
    parts = [spec.get(key) for key in keys]
    if not all(isinstance(part, str) and part for part in parts):
        return ""
    attributes = spec.get("attributes")
    entries = attributes if isinstance(attributes, dict) else {}
    pairs = sorted((str(key), str(value)) for key, value in entries.items())
    return msgspec.json.encode([parts, pairs]).decode()


def _workload(claim: StoredObject) -> str:
    """Return the index key of the workload that a data source claim names in its namespace; "" for any other
    claim."""
    workload = (claim.document.get("spec") or {}).get("workload")
    if not isinstance(workload, dict) or workload.get("namespace") not in (None, "", claim.namespace):
        return ""
    return "\0".join((claim.namespace, *(str(workload.get(key) or "") for key in ("apiVersion", "kind", "name"))))


def _clusters(source: StoredObject) -> tuple[str, ...]:
    locality = (source.document.get("spec") or {}).get("locality")
    names = locality.get("clusterNames") if isinstance(locality, dict) else None
    return tuple(sorted(str(name) for name in names)) if isinstance(names, list) else ()


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(",", _MOST_NAMES)[:_MOST_NAMES])))


def _size(value: object) -> int:
    """Return the size of a data set in bytes; 1 for an unknown size."""
    try:
        return max(1, parse_quantity(value)) if value is not None else 1
    except (QuantityError, OverflowError):
        return 1
