"""Replacements of other schedulers' objects: their order, and refusals by the Phalanx webhook."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import yaml

from phalanx.admission import queues
from phalanx.admission.context import DEFAULT, ROOT, AdmissionContext, QueueCatalog, parent_of
from phalanx.admission.fields import Json, mapping, name_of
from phalanx.reports.migration.findings import FieldFinding, MigrationVerdict, ObjectFinding

# Other kinds are applied after the deepest queue.
_LAST = 99
_PLENTY = "1E"
_REFUSED = "`phalanx webhook` would refuse the Queue in its place"


def refused_queues(findings: list[ObjectFinding]) -> Iterator[tuple[int, FieldFinding]]:
    """Yield (index of a finding, refusal of its replacement Queue by the webhook when applied after its
    parents)."""
    made = {
        name_of(manifest): (place, manifest)
        for place, finding in enumerate(findings)
        for manifest in finding.manifests
        if manifest["kind"] == "Queue"
    }
    depths = _depths(manifest for _, manifest in made.values())
    # These queues always exist.
    catalog = QueueCatalog({"metadata": {"name": name}} for name in (ROOT, DEFAULT))
    amounts = {key for _, manifest in made.values() for key in mapping(manifest["spec"].get("deserved"))}
    for name in sorted(made, key=lambda name: (depths[name], name)):
        place, manifest = made[name]
        for refusal in _refusals(manifest, catalog):
            field_finding = FieldFinding("", MigrationVerdict.NOT_HONOURED, f"{_REFUSED}: {refusal}")
            above = catalog.get(parent_of(manifest))
            if above is not None and refusal not in _refusals(manifest, catalog, _generous(above, amounts)):
                words = f"until {name_of(above)} has the deserved amounts of its children"
                field_finding = FieldFinding("", MigrationVerdict.CHANGE, f"{_REFUSED} {words}: {refusal}")
            yield place, field_finding
        catalog.put(manifest)


def _refusals(manifest: Json, catalog: QueueCatalog, above: Json | None = None) -> list[str]:
    """Return the webhook's refusals of a Queue manifest among existing queues; `above` replaces its parent
    queue."""
    if above is not None:
        catalog = QueueCatalog((*catalog.all(), above))
    context = AdmissionContext(queues=catalog)
    return queues.validate(queues.defaults(manifest, context).document, None, context)


def _generous(queue: Json, amounts: Iterable[str]) -> Json:
    """Return the queue with large deserved amounts, as an administrator can set them."""
    spec = mapping(queue.get("spec"))
    deserved = {**dict.fromkeys(amounts, _PLENTY), **mapping(spec.get("deserved"))}
    return {**queue, "spec": {**spec, "deserved": deserved}}


def manifest_files(object_findings: Iterable[ObjectFinding], policies: Mapping[str, str]) -> dict[str, str]:
    """Return the manifest files to write, as text by path.

    `kubectl apply -f DIR` sorts by file name: numeric prefixes put queues after their parents and groups after all
    queues.
    """
    findings = list(object_findings)
    depths = _depths(made for finding in findings for made in finding.manifests if made["kind"] == "Queue")
    files: dict[str, str] = {}
    for at, text in enumerate(policies.values()):
        files["policy.yaml" if not at else f"policy-{at + 1}.yaml"] = text
    for finding in findings:
        name = re.sub(
            r"[^a-z0-9.-]", "_", "-".join(filter(None, (finding.kind, finding.namespace, finding.name))).lower()
        )
        if finding.manifests:
            rank = max(_rank(made, depths) for made in finding.manifests)
            files[f"objects/{rank:02}-{name}.yaml"] = yaml.safe_dump_all(list(finding.manifests), sort_keys=False)
        if finding.patch is not None:
            files[f"patches/{name}.yaml"] = yaml.safe_dump(finding.patch, sort_keys=False)
    return files


def _rank(manifest: Json, depths: Mapping[str, int]) -> int:
    return min(depths[name_of(manifest)], _LAST - 1) if manifest["kind"] == "Queue" else _LAST


def _depths(made: Iterable[Json]) -> dict[str, int]:
    """Return the depth of each replacement queue in the tree. In an invalid cycle of parents the depth is
    arbitrary."""
    parents = {name_of(queue): parent_of(queue) for queue in made}
    depths: dict[str, int] = {}
    for name in parents:
        passed = [name]
        while (above := parents.get(passed[-1], ROOT)) in parents and above not in passed and above not in depths:
            passed.append(above)
        depth = depths.get(parents[passed[-1]], 0)
        for queue in reversed(passed):
            depth = depths[queue] = depth + 1
    return depths
