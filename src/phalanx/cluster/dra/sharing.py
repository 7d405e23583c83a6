"""Consumable capacity: the amounts of a shared device that one request consumes."""

from __future__ import annotations

from phalanx.cluster.dra.amounts import nano, written
from phalanx.model.devices.claims import ConsumptionPolicy, Device, DeviceAsk, DeviceCapacity

# (name of the capacity, amount in nano-units, amount as written)
Consumption = tuple[tuple[str, int, str], ...]


def consumption(ask: DeviceAsk, device: Device) -> Consumption | None:
    """Return the amount of each of the device's capacities that the request consumes; None if the device is
    unsuitable even when unused.

    A capacity without a request is consumed by the policy's default, or completely. Raise QuantityError.
    """
    wanted = dict(ask.capacity)
    if any(name not in dict(device.capacity) for name in wanted):
        return None
    consumed: list[tuple[str, int, str]] = []
    for name, capacity in device.capacity:
        text = _rounded(wanted.get(name), capacity)
        if text is None or nano(text) > nano(capacity.value):
            return None
        consumed.append((name, nano(text), text))
    return tuple(consumed)


def _rounded(wanted: str | None, capacity: DeviceCapacity) -> str | None:
    policy = capacity.policy
    if wanted is None:
        return (policy and policy.default) or capacity.value
    if policy is None:
        return wanted
    if policy.low:
        return _into_range(wanted, policy)
    if policy.values:
        return next((value for value in policy.values if nano(wanted) <= nano(value)), None)
    return wanted


def _into_range(wanted: str, policy: ConsumptionPolicy) -> str | None:
    amount, low = nano(wanted), nano(policy.low)
    if amount <= low:
        return policy.low
    text = wanted
    if policy.step:
        step = nano(policy.step)
        steps = -(-(amount - low) // step)
        amount = low + steps * step
        text = written(amount)
    return None if policy.high and amount > nano(policy.high) else text
