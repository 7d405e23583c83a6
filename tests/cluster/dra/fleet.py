"""Short forms of devices, claims and allocations for tests."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.devices.shelves import Inquiry, devices_near
from phalanx.cluster.devices.use import DeviceUse
from phalanx.cluster.dra.question import ClaimQuestion
from phalanx.cluster.dra.selectors import Selectors
from phalanx.cluster.dra.supply import Offer, Pool, Supply
from phalanx.model.devices.claims import (
    AllocatedDevice,
    ClaimResult,
    ClaimSpec,
    Device,
    DeviceAsk,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceRequest,
    DeviceSlice,
    DeviceTaint,
    NodeAccess,
)

DRIVER, NODE = "gpu.example.com", "n1"
# Compiled expressions are equal for all tests.
SELECTORS = Selectors()
CLASSES = {
    "gpu": DeviceClass("gpu", (f'device.driver == "{DRIVER}"',)),
    "big": DeviceClass("big", (f'device.attributes["{DRIVER}"].model == "big"',)),
}


def device(
    name: str,
    *,
    memory: str = "",
    taint: str = "",
    counters: Sequence[tuple[str, str, str]] = (),
    shareable: bool = False,
    **attributes: str | int | bool,
) -> Device:
    kinds = {str: "string", int: "int", bool: "bool"}
    return Device(
        name=name,
        attributes=tuple((key, DeviceAttribute(kinds[type(value)], value)) for key, value in attributes.items()),
        capacity=(("memory", DeviceCapacity(memory)),) if memory else (),
        counters=tuple(counters),
        taints=(DeviceTaint(taint, "", "NoSchedule"),) if taint else (),
        shareable=shareable,
    )


def pool(
    *devices: Device,
    name: str = NODE,
    generation: int = 1,
    parts: int = 1,
    part: int = 0,
    access: NodeAccess | None = None,
    counters: Sequence[tuple[str, str, str]] = (),
) -> DeviceSlice:
    return DeviceSlice(
        name=f"{name}-{generation}-{part}",
        driver=DRIVER,
        pool=name,
        generation=generation,
        parts=parts,
        access=access or NodeAccess(node=NODE),
        devices=devices,
        counters=tuple(counters),
    )


def ask(name: str = "gpu", count: int = 1, device_class: str = "gpu", **more: object) -> DeviceAsk:
    return DeviceAsk(name=name, device_class=device_class, count=count, **more)  # type: ignore[arg-type]


def request(*asks: DeviceAsk, name: str = "") -> DeviceRequest:
    """Return one request; prioritised if there is more than one ask."""
    return DeviceRequest(name or asks[0].name, asks, prioritised=len(asks) > 1)


def claim(*requests: DeviceRequest, **more: object) -> ClaimSpec:
    return ClaimSpec(requests=requests, **more)  # type: ignore[arg-type]


class Node:
    """One node with the devices that it can use."""

    def __init__(self, *slices: DeviceSlice, used: Sequence[str] = ()) -> None:
        self.supply = Supply()
        for each in slices:
            self.supply.put(each)
        self.use = DeviceUse()
        self.occupy(*used)

    def occupy(self, *names: str) -> None:
        ids = [(DRIVER, NODE, name) for name in names]
        self.use.book(ClaimResult(tuple(map(AllocatedDevice, ids))), 1)

    def inquiry(self, *specs: ClaimSpec) -> Inquiry:
        return Inquiry(ClaimQuestion(specs, CLASSES, SELECTORS), self.use, ChangeLog(), lambda row: self.near())

    def near(self) -> list[tuple[Pool, Sequence[Offer]]]:
        pools = self.supply.near(NODE, lambda terms: False)
        return [(each, devices_near(each, NODE, lambda terms: False)) for each in pools]

    def copies(self, *specs: ClaimSpec) -> list[list[list[str]]]:
        """Return the names of the devices, by pod and by claim."""
        inquiry = self.inquiry(*specs)
        laid = inquiry.laid(0)
        found = inquiry.answer(laid.shelf)
        return [[[laid.offers[pick.slot].device.name for pick in part] for part in picks] for picks in found.copies]

    def first(self, *specs: ClaimSpec) -> list[list[str]] | None:
        return next(iter(self.copies(*specs)), None)
