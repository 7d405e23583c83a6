"""DeviceTaintRules: taints that administrators put on devices, beside those in the slices of the drivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.cluster.dra.errors import SelectorError
from phalanx.cluster.dra.selectors import Selectors
from phalanx.model.devices.claims import Device, DeviceClass, DeviceId, DeviceTaintRule


def rules_of(
    rules: Sequence[DeviceTaintRule],
    identity: DeviceId,
    device: Device,
    classes: Mapping[str, DeviceClass],
    selectors: Selectors,
) -> tuple[DeviceTaintRule, ...]:
    """Return the rules that select a device. All criteria of a rule must match.

    A rule without a selector selects no device. An expression that fails for a device does not select it, nor does
    a class that does not exist.
    """
    return tuple(rule for rule in rules if _selects(rule, identity, device, classes, selectors))


def _selects(
    rule: DeviceTaintRule,
    identity: DeviceId,
    device: Device,
    classes: Mapping[str, DeviceClass],
    selectors: Selectors,
) -> bool:
    selector = rule.selector
    if selector is None:
        return False
    stated = (selector.driver, selector.pool, selector.device)
    if any(name is not None and name != own for name, own in zip(stated, identity, strict=True)):
        return False
    expressions = selector.selectors
    if selector.device_class is not None:
        device_class = classes.get(selector.device_class)
        if device_class is None or device_class.problem:
            return False
        expressions = (*device_class.selectors, *expressions)
    try:
        return all(selectors.matches(text, identity[0], device) for text in expressions)
    except SelectorError:
        return False
