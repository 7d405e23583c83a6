"""Requests of pods for shared GPUs, and the GPUs of bound pods: Volcano's vGPU and GPU sharing, Koordinator's
GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.dialects.core import Container, PodObject
from phalanx.dialects.devices.device_plans import DEVICE_PLAN, planned_cards
from phalanx.dialects.devices.device_results import RESULT_KEYS, cards_named
from phalanx.dialects.pods.requests import StatedRequests
from phalanx.dialects.signatures import Signer
from phalanx.model.devices import device_words as words
from phalanx.model.devices.cards import FULL, CardShare, DeviceNeed, Family
from phalanx.model.resources import MAX_AMOUNT, Requests, requests_of
from phalanx.model.text.quantity import QuantityError, parse_quantity

# Keys with which a pod names its group, in Volcano's order.
_GROUP_KEYS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_SPREAD = "spread"
_UNSET_PERCENT = 101  # Volcano's value for "no percentage"

_KOORDINATOR = (
    words.KOORDINATOR_GPU,
    words.KOORDINATOR_SHARED,
    words.KOORDINATOR_CORE,
    words.KOORDINATOR_MEMORY,
    words.KOORDINATOR_RATIO,
)
# Allowed combinations of resources (ValidDeviceResourceCombinations of the deviceshare plugin).
_COMBINATIONS = frozenset(
    frozenset(names)
    for names in (
        (words.KOORDINATOR_GPU,),
        (words.KOORDINATOR_MEMORY,),
        (words.KOORDINATOR_RATIO,),
        (words.KOORDINATOR_CORE, words.KOORDINATOR_MEMORY),
        (words.KOORDINATOR_CORE, words.KOORDINATOR_RATIO),
        (words.KOORDINATOR_SHARED, words.KOORDINATOR_MEMORY),
        (words.KOORDINATOR_SHARED, words.KOORDINATOR_RATIO),
        (words.KOORDINATOR_SHARED, words.KOORDINATOR_CORE, words.KOORDINATOR_MEMORY),
        (words.KOORDINATOR_SHARED, words.KOORDINATOR_CORE, words.KOORDINATOR_RATIO),
    )
)
# Unsupported annotations: a pod that requests cards of this family with one of these waits.
UNSUPPORTED = (words.DEVICE_HINT, words.DEVICE_JOINT, words.GPU_PARTITION)
_READ = (
    words.VGPU_MODE,
    words.VGPU_USE_IDS,
    words.VGPU_OTHER_IDS,
    words.USE_KINDS,
    words.OTHER_KINDS,
    *UNSUPPORTED,
)


def device_terms(pod: PodObject) -> dict[str, str]:
    """Return the labels and annotations of a pod that `device_need` depends on."""
    annotations = pod.metadata.annotations
    if not annotations:
        return {}
    terms = {key: annotations[key] for key in _READ if key in annotations}
    if annotations.get(words.VGPU_GROUP_POLICY) == _SPREAD:
        group = next((annotations[key] for key in _GROUP_KEYS if annotations.get(key)), "")
        if group:
            terms[words.VGPU_GROUP_POLICY] = f"{pod.metadata.namespace}/{group}"
    return terms


def device_need(pod: PodObject, demand: StatedRequests) -> DeviceNeed | None:
    """Return a pod's need for shared GPUs; None for a pod without. Among several families of GPU resources the
    first has precedence."""
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        resources = container.resources
        if resources is not None and any(
            "volcano.sh/" in name for name in (*resources.limits, *resources.requests)
        ):
            need = _volcano(pod)
            if need is not None:
                return need
            break
    card_amounts = {name: amount for name, amount in demand.requests if name in _KOORDINATOR}
    return _koordinator(card_amounts, device_terms(pod)) if card_amounts else None


# Volcano


def _volcano(pod: PodObject) -> DeviceNeed | None:
    terms = device_terms(pod)
    try:
        shares = tuple(share for container in pod.spec.containers if (share := _vgpu_share(container)) is not None)
        if shares:
            return DeviceNeed(
                Family.VGPU,
                shares,
                kinds=_listed(terms.get(words.USE_KINDS)),
                other_kinds=() if words.USE_KINDS in terms else _listed(terms.get(words.OTHER_KINDS)),
                ids=_listed(terms.get(words.VGPU_USE_IDS)),
                other_ids=_listed(terms.get(words.VGPU_OTHER_IDS)),
                mode=terms.get(words.VGPU_MODE, ""),
                group=terms.get(words.VGPU_GROUP_POLICY, ""),
            )
        memory, number = _peak(pod, words.GPU_MEMORY), _peak(pod, words.GPU_NUMBER)
    except QuantityError as error:
        return DeviceNeed(Family.VGPU, problem=f"the pod's GPU requests cannot be read: {error}")
    if memory:
        return DeviceNeed(Family.GPU_SHARE, (CardShare(memory=memory),))
    if number:
        return DeviceNeed(Family.GPU_SHARE, (CardShare(count=number, percent=FULL, cores=FULL),))
    return None


def charged(requests: Requests, need: DeviceNeed | None) -> Requests:
    """Return a pod's requests as charged to queues, quotas and nodes: amounts per vGPU, times the number of vGPUs.

    Volcano states memory, cores and percentages per card, so a sum over containers is too small.
    """
    if need is None or need.family is not Family.VGPU or all(share.count == 1 for share in need.shares):
        return requests
    amounts = dict(requests)
    for name, amounts_per_share in (
        (words.VGPU_MEMORY, [share.memory * share.count for share in need.shares]),
        (words.VGPU_CORES, [share.cores * share.count for share in need.shares]),
        (words.VGPU_PERCENT, [share.percent * share.count for share in need.shares]),
    ):
        if name in amounts:
            amounts[name] = max(amounts[name], min(MAX_AMOUNT, sum(amounts_per_share)))
    return requests_of(amounts)


def _vgpu_share(container: Container) -> CardShare | None:
    """Return the vGPU share that a container requests. Limits have precedence over requests; memory alone implies
    one GPU."""
    number, memory = _amount(container, words.VGPU_NUMBER), _amount(container, words.VGPU_MEMORY)
    if number is None:
        number = 1 if memory is not None else 0
    if not number:
        return None
    percent = _amount(container, words.VGPU_PERCENT)
    if percent is None or percent == _UNSET_PERCENT:
        percent = 0 if memory else FULL
    cores = _amount(container, words.VGPU_CORES) or 0
    return CardShare(number, 0 if percent else memory or 0, percent, cores)


def _peak(pod: PodObject, resource: str) -> int:
    """Return the peak of a pod's requests for a resource as Volcano computes it: the sum of all containers, or the
    largest init container."""
    spec = pod.spec
    together = sum(_amount(container, resource) or 0 for container in spec.containers)
    return max([together, *(_amount(container, resource) or 0 for container in spec.init_containers)])


def _amount(container: Container, resource: str) -> int | None:
    """Return the amount of a resource that a container requests; None for none. Raise QuantityError."""
    resources = container.resources
    for amounts in (resources.limits, resources.requests) if resources is not None else ():
        if resource in amounts:
            return max(0, parse_quantity(amounts[resource]))
    return None


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(sorted({part.strip() for part in (text or "").split(",")} - {""}))


# Koordinator


def _koordinator(amounts: Mapping[str, int], terms: Mapping[str, str]) -> DeviceNeed:
    problem = next((f"annotation {key} is not supported yet" for key in UNSUPPORTED if key in terms), "")
    problem = problem or _koordinator_problem(amounts)
    if problem:
        return DeviceNeed(Family.KOORDINATOR, problem=problem)
    whole = amounts.get(words.KOORDINATOR_GPU, 0)
    cores = whole or amounts.get(words.KOORDINATOR_CORE, 0)
    ratio, memory = whole or amounts.get(words.KOORDINATOR_RATIO, 0), amounts.get(words.KOORDINATOR_MEMORY, 0)
    count = amounts.get(words.KOORDINATOR_SHARED, 0) or max(1, ratio // FULL)
    share = CardShare(count, memory // count, ratio // count, cores // count)
    return DeviceNeed(Family.KOORDINATOR, (share,))


def _koordinator_problem(amounts: Mapping[str, int]) -> str:
    if frozenset(amounts) not in _COMBINATIONS:
        return f"{', '.join(sorted(amounts))} cannot be requested together"
    count = amounts.get(words.KOORDINATOR_SHARED, 0)
    for name in (words.KOORDINATOR_GPU, words.KOORDINATOR_CORE, words.KOORDINATOR_RATIO):
        amount = amounts.get(name, 0)
        if count and (amount % count or amount // count > FULL):
            return f"{name} {amount} cannot be shared out evenly over {count} GPUs, at most {FULL} of each"
        if not count and amount > FULL and amount % FULL:
            return f"{name} {amount} is more than {FULL} and not a multiple of it"
    return ""


# Cards of a bound pod.


def cards_of(pod: PodObject, need: DeviceNeed | None, signer: Signer) -> tuple[str, ...]:
    """Return the ids of a bound pod's GPUs: the signed ones, else those of its annotations, which are not
    trustworthy."""
    annotations, node = pod.metadata.annotations, pod.spec.node_name
    if not node or RESULTS.isdisjoint(annotations):
        return ()
    planned = planned_cards(annotations, signer, pod.metadata.uid, node)
    if planned is not None:
        return planned
    return cards_named(need.family if need is not None else Family.KOORDINATOR, annotations)


#: Annotations that name the GPUs of a bound pod.
RESULTS = frozenset((DEVICE_PLAN, *RESULT_KEYS))
