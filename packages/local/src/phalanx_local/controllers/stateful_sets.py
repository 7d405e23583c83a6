"""StatefulSets: pods with stable names and their own PersistentVolumeClaims."""

from __future__ import annotations

from typing import Final

from phalanx_local.controllers.pod_owner import PODS, PodOwner, is_ready, number
from phalanx_local.controllers.volumes import CLAIMS
from phalanx_local.objects import Json, clone, mapping, metadata, sequence, text
from phalanx_local.registry.resources import ResourceType
from phalanx_local.storage.records import Record
from phalanx_local.strategies.pods import TERMINAL

_POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
_INDEX: Final = "apps.kubernetes.io/pod-index"


class StatefulSetController(PodOwner):
    """Controller of apps/v1 StatefulSets: ordinals, volumeClaimTemplates, OrderedReady and Parallel.

    Pods of an outdated template remain until they are deleted, as with updateStrategy OnDelete;
    PersistentVolumeClaims are never deleted.
    """

    storage = "apps/statefulsets"

    def sync(self, type_: ResourceType, record: Record) -> None:
        obj = record.load()
        spec = mapping(obj.get("spec"))
        first = number(mapping(spec.get("ordinals")).get("start"), 0)
        wanted = range(first, first + number(spec.get("replicas"), 1))
        one_by_one = spec.get("podManagementPolicy") != "Parallel"
        pods = {ordinal: pod for pod in self.dependents(record) if (ordinal := _ordinal(record, pod)) >= 0}
        self._fill(type_, record, spec, wanted, pods, one_by_one)
        surplus = sorted((ordinal for ordinal in pods if ordinal not in wanted), reverse=True)
        if not one_by_one or all(ordinal in pods and is_ready(pods[ordinal]) for ordinal in wanted):
            for ordinal in surplus[:1] if one_by_one else surplus:
                self.delete(PODS, pods[ordinal])
        self._report(type_, record, obj)

    def _fill(
        self,
        type_: ResourceType,
        record: Record,
        spec: Json,
        wanted: range,
        pods: dict[int, Record],
        one_by_one: bool,
    ) -> None:
        for ordinal in wanted:
            pod = pods.get(ordinal)
            if pod is not None and pod.fields["status.phase"] in TERMINAL and not pod.terminating:
                self.delete(PODS, pod)
            elif pod is None:
                self._make(type_, record, spec, ordinal)
            if one_by_one and (pod is None or not is_ready(pod)):
                return

    def _make(self, type_: ResourceType, record: Record, spec: Json, ordinal: int) -> None:
        name = f"{record.name}-{ordinal}"
        body = self.make_pod(type_, record, mapping(spec.get("template")))
        meta, pod = metadata(body), body["spec"]
        del meta["generateName"]
        meta["name"] = name
        meta["labels"] = {**mapping(meta.get("labels")), _POD_NAME: name, _INDEX: str(ordinal)}
        pod["hostname"] = name
        if spec.get("serviceName"):
            pod["subdomain"] = text(spec["serviceName"])
        volumes = [volume for volume in sequence(pod.get("volumes")) if isinstance(volume, dict)]
        for template in map(mapping, sequence(spec.get("volumeClaimTemplates"))):
            volume = text(metadata(template).get("name"))
            claim = f"{volume}-{name}"
            volumes = [entry for entry in volumes if entry.get("name") != volume]
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
            if self.current(CLAIMS, (record.namespace, claim)) is None:
                self._make_claim(record, spec, template, claim)
        if volumes:
            pod["volumes"] = volumes
        self.create_pod(record.namespace, body)

    def _make_claim(self, record: Record, spec: Json, template: Json, name: str) -> None:
        template_meta = mapping(template.get("metadata"))
        meta: Json = {"name": name}
        selector_labels = mapping(mapping(spec.get("selector")).get("matchLabels"))
        meta["labels"] = {**clone(mapping(template_meta.get("labels"))), **selector_labels}
        if template_meta.get("annotations"):
            meta["annotations"] = clone(mapping(template_meta["annotations"]))
        body = {"metadata": meta, "spec": clone(mapping(template.get("spec")))}
        self.create(CLAIMS, record.namespace, body)

    def _report(self, type_: ResourceType, record: Record, obj: Json) -> None:
        pods = [pod for pod in self.dependents(record) if not pod.terminating]
        ready = sum(map(is_ready, pods))
        status = {
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentReplicas": len(pods),
            "updatedReplicas": len(pods),
            "observedGeneration": metadata(obj).get("generation", 1),
            "collisionCount": 0,
        }
        kept = ("replicas", "availableReplicas", "collisionCount")
        self.put_status(type_, record.key, {key: value for key, value in status.items() if value or key in kept})


def _ordinal(owner: Record, pod: Record) -> int:
    """Return the ordinal of a StatefulSet's pod; -1 for a pod that does not belong to the set."""
    prefix, _, digits = pod.name.rpartition("-")
    return int(digits) if prefix == owner.name and digits.isdecimal() else -1
