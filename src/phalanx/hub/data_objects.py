"""What gangs need of data: sets that a cluster must hold or had better, claims on data sources, and what has to be
complete before they are sent.

DataSource and DataSourceClaim are volcano-global's (`datadependency.volcano.sh`): read, never written. A claim
narrows the clusters of its workload to those of the source that matches it by system, type, name and attributes,
as volcano-global's own controller binds it; bound or not, so that they work where that controller does not run.
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
from phalanx.model.text.quantity import QuantityError, parse_quantity

#: Annotations of PodGroups and jobs that users write at the hub: names of sets, apart by commas.
DATA_SETS = "phalanx.dev/data-sets"
PREFERRED_DATA_SETS = "phalanx.dev/preferred-data-sets"
#: What brings data in, as kind/name in the gang's namespace, apart by commas: it must be complete first.
STAGE_IN = "phalanx.dev/stage-in"

DATA_SOURCES = Resource("datadependency.volcano.sh", "v1alpha1", "datasources", "DataSource", namespaced=False)
DATA_SOURCE_CLAIMS = Resource("datadependency.volcano.sh", "v1alpha1", "datasourceclaims", "DataSourceClaim")
JOBS = Resource("batch", "v1", "jobs", "Job")
DATA_LOADS = Resource("data.fluid.io", "v1alpha1", "dataloads", "DataLoad")
DATA_SETS_OF_FLUID = Resource("data.fluid.io", "v1alpha1", "datasets", "Dataset")
#: What STAGE_IN may name, by the word before the slash.
STAGE_IN_KINDS = {"job": JOBS, "dataload": DATA_LOADS, "dataset": DATA_SETS_OF_FLUID}

_MOST_NAMES = 64
_MOST_MESSAGE = 300


class DataNeeds(msgspec.Struct, frozen=True):
    """`required` and `preferred` are names of sets. `claimed` has, for each claim, what it is on and the clusters
    that hold it. `waits_for` says what is not complete yet, "" for nothing; `reason` is its code."""

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    claimed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    reason: str = ""
    waits_for: str = ""

    @property
    def anywhere(self) -> bool:
        """Whether all clusters are the same to it."""
        return not (self.required or self.preferred or self.claimed)


class HeldData(msgspec.Struct, frozen=True):
    """The sets that a member cluster holds, with their sizes in bytes; 1 where nobody says."""

    sizes: Mapping[str, int]

    def refusal(self, cluster: str, needs: DataNeeds) -> str:
        """Why a gang may not go there; "" where it may."""
        missing = [name for name in needs.required if name not in self.sizes]
        if missing:
            return printable(f"does not hold data set {', '.join(missing)}", _MOST_MESSAGE)
        elsewhere = [what for what, clusters in needs.claimed if cluster not in clusters]
        return printable(f"does not hold {', '.join(elsewhere)}", _MOST_MESSAGE) if elsewhere else ""


def held_data(spec: Json) -> HeldData:
    """Of a MemberCluster; entries that cannot be read are not there."""
    found: dict[str, int] = {}
    for each in spec.get("dataSets") or ():
        if isinstance(each, dict) and isinstance(each.get("name"), str):
            found[each["name"]] = _size(each.get("size"))
    return HeldData(found)


def bytes_to_move(cluster: HeldData, others: Iterable[HeldData], needs: DataNeeds) -> int:
    """How much of what a gang would rather have is not there, by the largest size that any cluster gives."""
    missing = [name for name in needs.preferred if name not in cluster.sizes]
    sizes = [each.sizes for each in others] if missing else []
    return sum(max((each[name] for each in sizes if name in each), default=1) for name in missing)


class DataObjects:
    """Claims, sources and what brings data in, as the hub's API has them; `job` finds a batch Job by namespace and
    name."""

    def __init__(self, job: Callable[[str, str], StoredObject | None]) -> None:
        self._job = job
        self.sources: ObjectStore[StoredObject] = ObjectStore(read_object, index=_identity)
        self.claims: ObjectStore[StoredObject] = ObjectStore(read_object, index=_workload)
        self._loads: ObjectStore[StoredObject] = ObjectStore(read_object)
        self._sets: ObjectStore[StoredObject] = ObjectStore(read_object)

    def reflectors(self, client: KubeClient, failures: Failures) -> Iterator[Reflector[bytes]]:
        """These definitions may be somebody else's, or not be there."""
        for resource, store in (
            (DATA_SOURCES, self.sources),
            (DATA_SOURCE_CLAIMS, self.claims),
            (DATA_LOADS, self._loads),
            (DATA_SETS_OF_FLUID, self._sets),
        ):
            yield Reflector(client, resource, bytes, store.sink, failures=failures, optional=True)

    def needs(self, api_version: str, kind: str, group: StoredObject) -> DataNeeds:
        """Of a PodGroup or a job."""
        reason, waits_for = "", ""
        for text in _names(group.annotation(STAGE_IN)):
            if waits_for := self._incomplete(group.namespace, text):
                reason = "StageIn"
                break
        claimed: list[tuple[str, tuple[str, ...]]] = []
        for claim in self._claims(api_version, kind, group):
            spec = claim.document.get("spec") or {}
            what = f"{printable(spec.get('dataSourceType'), 60)} {printable(spec.get('dataSourceName'), 120)}"
            source = self._source(claim)
            if source is None:
                reason = reason or "DataSourceClaim"
                waits_for = waits_for or f"DataSourceClaim {claim.name}: no DataSource has {what}"
            else:
                claimed.append((what, _clusters(source)))
        return DataNeeds(
            _names(group.annotation(DATA_SETS)),
            _names(group.annotation(PREFERRED_DATA_SETS)),
            tuple(claimed),
            reason,
            waits_for,
        )

    def _claims(self, api_version: str, kind: str, group: StoredObject) -> list[StoredObject]:
        """Those of its own namespace, for it or for the controller that has made it: who writes there may narrow
        what runs there, and nothing else."""
        workloads = [(api_version, kind, group.name)]
        owners = group.document["metadata"].get("ownerReferences")
        workloads += [
            (str(owner.get("apiVersion")), str(owner.get("kind")), str(owner.get("name")))
            for owner in (owners if isinstance(owners, list) else ())
            if isinstance(owner, dict) and owner.get("controller") is True
        ]
        found = [claim for each in workloads for claim in self.claims.of("\0".join((group.namespace, *each)))]
        return sorted(found, key=lambda claim: claim.name)

    def _source(self, claim: StoredObject) -> StoredObject | None:
        """The one that it is bound to, if that is what it asks for; else the first that is."""
        spec = claim.document.get("spec") or {}
        identity = _joined(spec, "system", "dataSourceType", "dataSourceName")
        found = sorted(self.sources.of(identity), key=lambda source: source.name) if identity else []
        bound = (claim.document.get("status") or {}).get("boundDataSource")
        return next((each for each in found if each.name == bound), found[0] if found else None)

    def _incomplete(self, namespace: str, text: str) -> str:
        """What is still missing of one entry of STAGE_IN; "" for one that is complete."""
        word, _, name = text.partition("/")
        kind = STAGE_IN_KINDS.get(word.lower())
        if kind is None or not name:
            known = ", ".join(f"{each}/NAME" for each in STAGE_IN_KINDS)
            return printable(f"{STAGE_IN}: {text!r} is none of {known}", _MOST_MESSAGE)
        called = f"{kind.kind} {printable(name, 100)}"
        if kind is JOBS:
            found = self._job(namespace, name)
            return _job_incomplete(called, found)
        store = self._loads if kind is DATA_LOADS else self._sets
        found = store.get((namespace, name))
        if found is None:
            return f"{called} brings its data in, and is not there"
        phase = (found.document.get("status") or {}).get("phase")
        if phase == "Failed":
            return f"{called} was to bring its data in, and has failed"
        # (A Dataset is Bound once its cache can serve; a DataLoad is Complete once it has been filled.)
        done = phase == ("Complete" if kind is DATA_LOADS else "Bound")
        return "" if done else f"{called} has not brought its data in yet ({printable(phase or 'no phase', 40)})"


def _job_incomplete(called: str, job: StoredObject | None) -> str:
    if job is None:
        return f"{called} brings its data in, and is not there"
    conditions = (job.document.get("status") or {}).get("conditions")
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, dict) and each.get("status") == "True":
            if each.get("type") == "Complete":
                return ""
            if each.get("type") == "Failed":
                why = printable(each.get("message") or each.get("reason") or "", 150)
                return f"{called} was to bring its data in, and has failed: {why}"
    return f"{called} has not brought its data in yet"


def _identity(source: StoredObject) -> str:
    return _joined(source.document.get("spec") or {}, "system", "type", "name")


def _joined(spec: Json, *keys: str) -> str:
    """What a source is, and a claim is on; "" where a part is missing."""
    parts = [spec.get(key) for key in keys]
    if not all(isinstance(part, str) and part for part in parts):
        return ""
    attributes = spec.get("attributes")
    given = attributes if isinstance(attributes, dict) else {}
    pairs = sorted((str(key), str(value)) for key, value in given.items())
    return msgspec.json.encode([parts, pairs]).decode()


def _workload(claim: StoredObject) -> str:
    """Of a claim on data for a workload of its own namespace; "" for any other."""
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
    """Bytes; 1 where it is not said."""
    try:
        return max(1, parse_quantity(value)) if value is not None else 1
    except (QuantityError, OverflowError):
        return 1
