"""Simulated devices of a node: entries of the nodes file, and the ResourceSlices that publish them.

devices:
- driver: gpu.example.com
  count: 4
  name: gpu-{i}
  attributes: {model: A100, numa: 0}
  capacity: {memory: 40Gi}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.text.decoding import decode_json, quoted

SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)

# Maximum number of devices in one slice.
_MAX_DEVICES = 128
_FIELDS = ("driver", "count", "name", "attributes", "capacity")

# Function (method, path, body) that returns the body of the answer.
Call = Callable[[str, str, Any], Awaitable[bytes]]


class DeviceEntryError(Exception):
    """Mistake in the field `devices` of the nodes file; the text starts with the field."""


class DeviceOffer(msgspec.Struct, frozen=True):
    """Equal simulated devices of one driver; `name` contains `{i}` for their index. An attribute is {type:
    value}."""

    driver: str
    count: int = 1
    name: str = "device-{i}"
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, str] = {}


def read_devices(value: Any) -> tuple[DeviceOffer, ...]:
    """Return the simulated devices from the field `devices` of a node's entry. Raise DeviceEntryError for a
    mistake."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise DeviceEntryError(f"devices: expected a list, found {quoted(value)}")
    offers = tuple(_offer(entry) for entry in value)
    drivers = [offer.driver for offer in offers]
    for driver in drivers:
        if sum(offer.count for offer in offers if offer.driver == driver) > _MAX_DEVICES:
            raise DeviceEntryError(f"devices: {driver} has more than {_MAX_DEVICES} devices")
    return offers


def slice_object(node: str, node_uid: str, offers: tuple[DeviceOffer, ...], generation: int) -> dict[str, Any]:
    """Return a ResourceSlice with all devices of one driver on a node; it is deleted with the node."""
    driver = offers[0].driver
    devices: list[dict[str, Any]] = []
    for offer in offers:
        for _ in range(offer.count):
            device: dict[str, Any] = {"name": offer.name.replace("{i}", str(len(devices)))}
            if offer.attributes:
                device["attributes"] = offer.attributes
            if offer.capacity:
                device["capacity"] = {name: {"value": value} for name, value in offer.capacity.items()}
            devices.append(device)
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
    return {
        "apiVersion": SLICES.api_version,
        "kind": SLICES.kind,
        "metadata": {"name": slice_name(node, driver), "ownerReferences": [owner]},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def slice_name(node: str, driver: str) -> str:
    return f"{node}-{driver}"


async def publish(
    call: Call, node: str, node_uid: str, old: tuple[DeviceOffer, ...], new: tuple[DeviceOffer, ...]
) -> None:
    """Update the published ResourceSlices of a node from the devices `old` to the devices `new`."""
    wanted: dict[str, tuple[DeviceOffer, ...]] = {}
    for offer in new:
        wanted[offer.driver] = (*wanted.get(offer.driver, ()), offer)
    for driver, offers in wanted.items():
        body = slice_object(node, node_uid, offers, 1)
        try:
            await call("POST", SLICES.path(), body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            path = SLICES.path(None, slice_name(node, driver))
            known = decode_json(await call("GET", path, None))
            body = slice_object(node, node_uid, offers, known["spec"]["pool"]["generation"] + 1)
            body["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"]
            await call("PUT", path, body)
    for driver in {offer.driver for offer in old} - wanted.keys():
        try:
            await call("DELETE", SLICES.path(None, slice_name(node, driver)), None)
        except ApiError as error:
            if error.status != 404:
                raise


def _offer(entry: Any) -> DeviceOffer:
    if not isinstance(entry, dict):
        raise DeviceEntryError(f"devices: expected entries with a driver, found {quoted(entry)}")
    unknown = [str(field) for field in entry if field not in _FIELDS]
    if unknown:
        raise DeviceEntryError(f"devices.{unknown[0]}: unknown field; expected one of {', '.join(_FIELDS)}")
    driver, count, name = entry.get("driver"), entry.get("count", 1), entry.get("name", "device-{i}")
    if not isinstance(driver, str) or not driver:
        raise DeviceEntryError(f"devices.driver: expected a name such as gpu.example.com, found {quoted(driver)}")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MAX_DEVICES:
        raise DeviceEntryError(f"devices.count: expected a number from 1 to {_MAX_DEVICES}, found {quoted(count)}")
    if not isinstance(name, str) or (count > 1 and "{i}" not in name):
        raise DeviceEntryError(f"devices.name: {count} devices need {{i}} in their name, found {quoted(name)}")
    attributes = {str(key): _attribute(key, value) for key, value in _named(entry, "attributes").items()}
    capacity = {str(key): str(value) for key, value in _named(entry, "capacity").items()}
    return DeviceOffer(driver, count, name, attributes, capacity)


def _attribute(name: object, value: Any) -> dict[str, Any]:
    """Return a device attribute in the form of the API; a dict is in that form already (`{version: 1.2.3}`)."""
    match value:
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case str():
            return {"string": value}
        case dict() if len(value) == 1:
            return dict(value)
    raise DeviceEntryError(
        f"devices.attributes.{name}: expected a string, a number or true or false, found {quoted(value)}"
    )


def _named(entry: Mapping[str, Any], field: str) -> dict[str, Any]:
    value = entry.get(field) or {}
    if not isinstance(value, dict):
        raise DeviceEntryError(f"devices.{field}: expected names and values, found {quoted(value)}")
    return value
