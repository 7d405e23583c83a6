"""Random devices that pods claim: classes, slices, claims in every state."""

from __future__ import annotations

import random

from tests.differential.oracle.world import Wire, World

DRIVER, OTHER_DRIVER = "gpu.example.com", "nic.example.com"
CLASSES = ("gpu", "nic", "big", "missing")


class DeviceMaker:
    def __init__(self, chance: random.Random) -> None:
        self._random = chance

    def furnish(self, world: World) -> None:
        """Everything but the pods."""
        chance = self._random
        world.device_classes = [
            _class("gpu", f'device.driver == "{DRIVER}"'),
            _class("nic", f'device.driver == "{OTHER_DRIVER}"'),
            _class("big", f'device.driver == "{DRIVER}"', f'device.attributes["{DRIVER}"].model == "big"'),
        ]
        for node in world.nodes:
            for driver in (DRIVER, OTHER_DRIVER):
                if chance.random() < 0.6:
                    world.slices += self._pool(driver, node["metadata"]["name"])
        if chance.random() < 0.3:
            world.slices.append(self._slice(DRIVER, "shared", 1, {"allNodes": True}, 1))
        for namespace in ("default", "team-a", "team-b"):
            for at in range(chance.randint(1, 4)):
                self._claim(world, f"r{at}", namespace)

    def use(self, world: World, pod: Wire) -> None:
        chance = self._random
        space = pod["metadata"]["namespace"]
        mine = [
            entry["metadata"]["name"] for entry in world.resource_claims if entry["metadata"]["namespace"] == space
        ] or ["missing"]
        claims: list[Wire] = [
            {"name": f"d{at}", "resourceClaimName": chance.choice(mine) if chance.random() < 0.93 else "missing"}
            for at in range(chance.choice((0, 1, 1, 2)))
        ]
        statuses: list[Wire] = []
        if chance.random() < 0.3:
            claims.append({"name": "made", "resourceClaimTemplateName": "template"})
            state = chance.random()
            if state < 0.7:
                name = f"{pod['metadata']['name']}-made"
                claim = self._claim(world, name, pod["metadata"]["namespace"])
                statuses.append({"name": "made", "resourceClaimName": name})
                if chance.random() < 0.85:
                    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "controller": True}
                    claim["metadata"]["ownerReferences"] = [{**owner, "uid": pod["metadata"]["uid"]}]
            elif state < 0.8:
                statuses.append({"name": "made"})
        pod["spec"]["resourceClaims"] = claims
        pod["status"]["resourceClaimStatuses"] = statuses

    def _pool(self, driver: str, node: str) -> list[Wire]:
        chance = self._random
        newest = chance.choice((1, 1, 2))
        return [
            self._slice(driver, node, generation, {"nodeName": node}, chance.randint(0, 3))
            for generation in range(1, newest + 1)
        ]

    def _slice(self, driver: str, pool: str, generation: int, where: Wire, count: int) -> Wire:
        chance = self._random
        devices = []
        for at in range(count):
            device: Wire = {
                "name": f"dev-{at}",
                "attributes": {"model": {"string": chance.choice(("big", "small"))}},
            }
            if chance.random() < 0.2:
                effect = chance.choice(("NoSchedule", "NoExecute"))
                device["taints"] = [{"key": "broken", "value": "yes", "effect": effect}]
            devices.append(device)
        return {
            "metadata": {"name": f"{driver}-{pool}-{generation}"},
            "spec": {
                "driver": driver,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
                "devices": devices,
                **where,
            },
        }

    def _claim(self, world: World, name: str, namespace: str) -> Wire:
        chance = self._random
        requests = [self._request(f"q{at}") for at in range(chance.choice((1, 1, 2)))]
        claim: Wire = {
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"},
            "spec": {"devices": {"requests": requests}},
            "status": {},
        }
        if chance.random() < 0.35 and world.slices:
            claim["status"] = self._allocated(world)
        if chance.random() < 0.06:
            claim["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
        world.resource_claims.append(claim)
        return claim

    def _request(self, name: str) -> Wire:
        chance = self._random
        exactly: Wire = {"deviceClassName": chance.choice(CLASSES[: 3 if chance.random() < 0.9 else 4])}
        if chance.random() < 0.15:
            exactly["allocationMode"] = "All"
        else:
            exactly["allocationMode"] = "ExactCount"
            exactly["count"] = chance.choice((1, 1, 2))
        if chance.random() < 0.2 and exactly["deviceClassName"] == "gpu":
            expression = f'device.attributes["{DRIVER}"].model == "small"'
            exactly["selectors"] = [{"cel": {"expression": expression}}]
        if chance.random() < 0.25:
            exactly["tolerations"] = [{"key": "broken", "operator": "Exists"}]
        return {"name": name, "exactly": exactly}

    def _allocated(self, world: World) -> Wire:
        """Allocate devices to claims, some of them in use; no two claims get the same device."""
        chance = self._random
        held = {
            (result["driver"], result["pool"], result["device"])
            for claim in world.resource_claims
            for result in ((claim.get("status") or {}).get("allocation") or {})
            .get("devices", {})
            .get("results", [])
        }
        spec = chance.choice(world.slices)["spec"]
        results = [
            {"request": "q0", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
            for device in spec["devices"][:1]
            if (spec["driver"], spec["pool"]["name"], device["name"]) not in held
        ]
        allocation: Wire = {"devices": {"results": results}}
        if spec.get("nodeName"):
            field = {"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}
            allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        consumers = [
            {"resource": "pods", "name": f"other-{at}", "uid": f"other-{at}"}
            for at in range(chance.choice((0, 0, 1, 256)))
        ]
        return {"allocation": allocation, "reservedFor": consumers}


def _class(name: str, *expressions: str) -> Wire:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {"metadata": {"name": name}, "spec": {"selectors": selectors}}
