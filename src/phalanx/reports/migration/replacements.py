"""What is to be applied in the place of foreign objects: in which order, and what our webhook would say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import yaml

from phalanx.admission import queues
from phalanx.admission.context import DEFAULT, ROOT, AdmissionContext, QueueCatalog, parent_of
from phalanx.admission.fields import Json, mapping, name_of
from phalanx.reports.migration.findings import FieldFinding, MigrationVerdict, ObjectFinding

# What is no queue comes after the deepest of them.
_LAST = 99
_PLENTY = "1E"
_REFUSED = "`phalanx webhook` would refuse the Queue in its place"


def refused_queues(found: list[ObjectFinding]) -> Iterator[tuple[int, FieldFinding]]:
    """The place of a finding, and why the Queue in its place could not be created after those above it."""
    made = {
        name_of(manifest): (place, manifest)
        for place, each in enumerate(found)
        for manifest in each.manifests
        if manifest["kind"] == "Queue"
    }
    depths = _depths(manifest for _, manifest in made.values())
    # These two are there before anybody applies anything.
    catalog = QueueCatalog({"metadata": {"name": name}} for name in (ROOT, DEFAULT))
    amounts = {key for _, manifest in made.values() for key in mapping(manifest["spec"].get("deserved"))}
    for name in sorted(made, key=lambda name: (depths[name], name)):
        place, manifest = made[name]
        for refusal in _refusals(manifest, catalog):
            told = FieldFinding("", MigrationVerdict.NOT_HONOURED, f"{_REFUSED}: {refusal}")
            above = catalog.get(parent_of(manifest))
            if above is not None and refusal not in _refusals(manifest, catalog, _generous(above, amounts)):
                words = f"until {name_of(above)} deserves what its children do"
                told = FieldFinding("", MigrationVerdict.CHANGE, f"{_REFUSED} {words}: {refusal}")
            yield place, told
        catalog.put(manifest)


def _refusals(manifest: Json, catalog: QueueCatalog, above: Json | None = None) -> list[str]:
    """Among these queues; with another one `above` it than there is."""
    if above is not None:
        catalog = QueueCatalog((*catalog.all(), above))
    context = AdmissionContext(queues=catalog)
    return queues.validate(queues.defaults(manifest, context).document, None, context)


def _generous(queue: Json, amounts: Iterable[str]) -> Json:
    """As it would be if whoever knows how much there is wrote what it deserves."""
    spec = mapping(queue.get("spec"))
    deserved = {**dict.fromkeys(amounts, _PLENTY), **mapping(spec.get("deserved"))}
    return {**queue, "spec": {**spec, "deserved": deserved}}


def manifest_files(found: Iterable[ObjectFinding], policies: Mapping[str, str]) -> dict[str, str]:
    """What to write, by path. `kubectl apply -f DIR` goes by the names of files: a number before them brings queues
    after those above them, and groups after all queues."""
    findings = list(found)
    depths = _depths(made for each in findings for made in each.manifests if made["kind"] == "Queue")
    files: dict[str, str] = {}
    for at, text in enumerate(policies.values()):
        files["policy.yaml" if not at else f"policy-{at + 1}.yaml"] = text
    for each in findings:
        name = re.sub(r"[^a-z0-9.-]", "_", "-".join(filter(None, (each.kind, each.namespace, each.name))).lower())
        if each.manifests:
            rank = max(_rank(made, depths) for made in each.manifests)
            files[f"objects/{rank:02}-{name}.yaml"] = yaml.safe_dump_all(list(each.manifests), sort_keys=False)
        if each.patch is not None:
            files[f"patches/{name}.yaml"] = yaml.safe_dump(each.patch, sort_keys=False)
    return files


def _rank(manifest: Json, depths: Mapping[str, int]) -> int:
    return min(depths[name_of(manifest)], _LAST - 1) if manifest["kind"] == "Queue" else _LAST


def _depths(made: Iterable[Json]) -> dict[str, int]:
    """How many of them are above each queue; in a circle, which nobody can create, it is some number."""
    parents = {name_of(each): parent_of(each) for each in made}
    depths: dict[str, int] = {}
    for name in parents:
        passed = [name]
        while (above := parents.get(passed[-1], ROOT)) in parents and above not in passed and above not in depths:
            passed.append(above)
        depth = depths.get(parents[passed[-1]], 0)
        for each in reversed(passed):
            depth = depths[each] = depth + 1
    return depths
