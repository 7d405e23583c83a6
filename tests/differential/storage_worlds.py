"""Random storage: classes, volumes, claims, drivers and capacities, and pods that use them rightly and wrongly."""

from __future__ import annotations

import random

from tests.differential.oracle.world import Wire, World

ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
DRIVER, TRACKED = "csi.example.com", "tracked.example.com"
CLASSES = ("now", "late", "late", "zoned", "local", "tracked", "tracked", "missing")
_DISKS = ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")


class StorageMaker:
    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        # No two sizes are equal, so that the smallest volume is always one.
        self._sizes = list(range(1, 5000))
        chance.shuffle(self._sizes)
        self._count = 0

    def furnish(self, world: World) -> None:
        """Everything but the pods."""
        chance = self._random
        world.classes = [self._class(name) for name in dict.fromkeys(CLASSES) if name != "missing"]
        world.csi_drivers = [{"metadata": {"name": TRACKED}, "spec": {"storageCapacity": True}}]
        if chance.random() < 0.6:
            prevent = chance.random() < 0.4
            world.csi_drivers.append(
                {"metadata": {"name": DRIVER}, "spec": {"preventPodSchedulingIfMissing": prevent}}
            )
        world.csi_nodes = [self._csi_node(node) for node in world.nodes if chance.random() < 0.7]
        world.volumes = [self._volume() for _ in range(chance.randint(0, 4))]
        for namespace in ("default", "team-a", "team-b"):
            for at in range(chance.randint(1, 4)):
                self._claim(world, f"c{at}", namespace)
        world.capacities = [self._capacity(at) for at in range(chance.randint(0, 3))]
        world.attachments = [
            {
                "metadata": {"name": f"a{at}"},
                "spec": {
                    "attacher": DRIVER,
                    "nodeName": chance.choice(world.nodes)["metadata"]["name"],
                    "source": {"persistentVolumeName": chance.choice(world.volumes)["metadata"]["name"]},
                },
            }
            for at in range(chance.randint(0, 2))
            if world.volumes
        ]

    def use(self, world: World, pod: Wire) -> None:
        chance = self._random
        volumes: list[Wire] = [{"name": "scratch", "emptyDir": {}}]
        for at in range(chance.choice((0, 1, 1, 1, 2))):
            mine = [
                entry for entry in world.claims if entry["metadata"]["namespace"] == pod["metadata"]["namespace"]
            ]
            named = chance.random() < 0.93 and mine
            name = chance.choice(mine)["metadata"]["name"] if named else "missing"
            volumes.append({"name": f"v{at}", "persistentVolumeClaim": {"claimName": name}})
        if chance.random() < 0.15:
            volumes.append({"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}})
            if chance.random() < 0.8:
                claim = self._claim(world, f"{pod['metadata']['name']}-own", pod["metadata"]["namespace"])
                if chance.random() < 0.8:
                    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "controller": True}
                    claim["metadata"]["ownerReferences"] = [{**owner, "uid": pod["metadata"]["uid"]}]
        if chance.random() < 0.3:
            volumes.append({"name": "disk", **self._disk()})
        pod["spec"]["volumes"] = volumes

    def _class(self, name: str) -> Wire:
        entry: Wire = {
            "metadata": {"name": name},
            "provisioner": DRIVER,
            "volumeBindingMode": "Immediate" if name == "now" else "WaitForFirstConsumer",
        }
        if name == "local":
            entry["provisioner"] = "kubernetes.io/no-provisioner"
        if name == "tracked":
            entry["provisioner"] = TRACKED
        if name == "zoned":
            terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]
            entry["allowedTopologies"] = self._random.choice((terms, [{"matchLabelExpressions": []}]))
        return entry

    def _csi_node(self, node: Wire) -> Wire:
        chance = self._random
        name = node["metadata"]["name"]
        drivers: list[Wire] = []
        for driver in (DRIVER, TRACKED, "ebs.csi.aws.com"):
            if chance.random() < 0.7:
                entry: Wire = {"name": driver, "nodeID": name}
                if chance.random() < 0.7:
                    entry["allocatable"] = {"count": chance.choice((0, 1, 1, 2, 3))}
                drivers.append(entry)
        return {"metadata": {"name": name}, "spec": {"drivers": drivers}}

    def _volume(self) -> Wire:
        chance = self._random
        self._count += 1
        name = f"pv{self._count}"
        spec: Wire = {
            "capacity": {"storage": f"{self._sizes.pop()}Gi"},
            "accessModes": chance.choice((["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteMany"])),
            "storageClassName": chance.choice(CLASSES),
            "csi": {"driver": DRIVER, "volumeHandle": f"handle-{name}"},
        }
        if chance.random() < 0.4:
            zones = chance.choice((["a"], ["b", "c"]))
            term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": zones}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        if chance.random() < 0.15:
            spec["volumeMode"] = "Block"
        metadata: Wire = {"name": name, "uid": f"uid-{name}", "labels": {"tier": chance.choice(("gold", "tin"))}}
        if chance.random() < 0.3:
            metadata["labels"][chance.choice((ZONE, OLD_ZONE))] = chance.choice(("a", "a__b", "c", "a__"))
        if chance.random() < 0.08:
            metadata["deletionTimestamp"] = "2026-01-01T01:00:00Z"
        phase = chance.choice(("Available", "Available", "Available", "Released", "Pending"))
        return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}

    def _claim(self, world: World, name: str, namespace: str) -> Wire:
        chance = self._random
        uid = f"uid-{namespace}-{name}"
        modes = [chance.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"))]
        spec: Wire = {
            "accessModes": modes,
            "storageClassName": chance.choice(CLASSES),
            "resources": {"requests": {"storage": f"{self._sizes.pop() // 2}Gi"}},
        }
        metadata: Wire = {"name": name, "namespace": namespace, "uid": uid, "annotations": {}}
        claim: Wire = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        kind = chance.random()
        if kind < 0.45:  # bound
            volume = self._volume()
            volume["spec"]["claimRef"] = {"namespace": namespace, "name": name, "uid": uid}
            volume["status"]["phase"] = "Bound"
            spec["volumeName"] = volume["metadata"]["name"]
            if chance.random() < 0.9:
                world.volumes.append(volume)
            if chance.random() < 0.95:
                metadata["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
                claim["status"]["phase"] = "Bound"
        elif kind < 0.5:
            claim["status"]["phase"] = "Lost"
            spec["volumeName"] = "lost"
            metadata["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
        elif kind < 0.6 and world.nodes:
            node = chance.choice(world.nodes)["metadata"]["name"]
            metadata["annotations"]["volume.kubernetes.io/selected-node"] = node
        elif kind < 0.7:  # the volume is reserved for this claim
            volume = self._volume()
            volume["spec"]["storageClassName"] = spec["storageClassName"]
            volume["spec"]["claimRef"] = {"namespace": namespace, "name": name}
            if chance.random() < 0.3:
                volume["spec"]["claimRef"]["uid"] = "another"
            world.volumes.append(volume)
        if chance.random() < 0.2:
            spec["selector"] = {"matchLabels": {"tier": "gold"}}
        if chance.random() < 0.1:
            spec["volumeMode"] = chance.choice(("Block", "Filesystem"))
        if chance.random() < 0.08:
            metadata["deletionTimestamp"] = "2026-01-01T01:00:00Z"
        world.claims.append(claim)
        return claim

    def _capacity(self, at: int) -> Wire:
        chance = self._random
        entry: Wire = {
            "metadata": {"name": f"cap{at}", "namespace": "kube-system"},
            "storageClassName": "tracked",
            "capacity": f"{chance.randint(1, 4000)}Gi",
        }
        topology = chance.choice((None, {}, {"matchLabels": {ZONE: "a"}}))
        if topology is not None:
            entry["nodeTopology"] = topology
        if chance.random() < 0.3:
            entry["maximumVolumeSize"] = f"{chance.randint(1, 3000)}Gi"
        return entry

    def _disk(self) -> Wire:
        chance = self._random
        read_only = chance.random() < 0.4
        match chance.choice(_DISKS):
            case "gcePersistentDisk":
                return {"gcePersistentDisk": {"pdName": chance.choice("xy"), "readOnly": read_only}}
            case "awsElasticBlockStore":
                return {"awsElasticBlockStore": {"volumeID": chance.choice("xy"), "readOnly": read_only}}
            case "iscsi":
                target = {"targetPortal": "10.0.0.1", "lun": 0, "iqn": f"iqn.2026-01.example:{chance.choice('xy')}"}
                return {"iscsi": {**target, "readOnly": read_only}}
        monitors = chance.choice((["m1"], ["m2"], ["m1", "m2"]))
        return {"rbd": {"monitors": monitors, "pool": "rbd", "image": chance.choice("xy"), "readOnly": read_only}}
