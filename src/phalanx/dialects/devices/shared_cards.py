"""What pods ask of shared cards, and what they hold of them: Volcano's vGPU and GPU sharing, Koordinator's GPUs."""

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

# The keys by which a pod names its group, as Volcano looks for them.
_GROUP_KEYS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_SPREAD = "spread"
_UNSET_PERCENT = 101  # Volcano's word for "no percentage"

_KOORDINATOR = (
    words.KOORDINATOR_GPU,
    words.KOORDINATOR_SHARED,
    words.KOORDINATOR_CORE,
    words.KOORDINATOR_MEMORY,
    words.KOORDINATOR_RATIO,
)
# What may be asked for together (ValidDeviceResourceCombinations of the plugin deviceshare).
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
# What nobody here can do yet: a pod that asks for cards of this family so waits.
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
    """What of a pod's metadata `device_need` depends on."""
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
    """None for a pod that asks for no part of a card. Of several families the first counts."""
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        resources = container.resources
        if resources is not None and any(
            "volcano.sh/" in name for name in (*resources.limits, *resources.requests)
        ):
            found = _volcano(pod)
            if found is not None:
                return found
            break
    asked = {name: amount for name, amount in demand.requests if name in _KOORDINATOR}
    return _koordinator(asked, device_terms(pod)) if asked else None


# Volcano


def _volcano(pod: PodObject) -> DeviceNeed | None:
    terms = device_terms(pod)
    try:
        shares = tuple(share for each in pod.spec.containers if (share := _vgpu_share(each)) is not None)
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
        memory, number = _most(pod, words.GPU_MEMORY), _most(pod, words.GPU_NUMBER)
    except QuantityError as error:
        return DeviceNeed(Family.VGPU, problem=f"what the pod asks of GPUs cannot be read: {error}")
    if memory:
        return DeviceNeed(Family.GPU_SHARE, (CardShare(memory=memory),))
    if number:
        return DeviceNeed(Family.GPU_SHARE, (CardShare(count=number, percent=FULL, cores=FULL),))
    return None


def charged(requests: Requests, need: DeviceNeed | None) -> Requests:
    """Requests as accounts and nodes are charged them: what is asked of each vGPU, times how many there are.

    Volcano states memory, cores and percentages per card, so a sum over containers counts too little of them.
    """
    if need is None or need.family is not Family.VGPU or all(share.count == 1 for share in need.shares):
        return requests
    amounts = dict(requests)
    for name, asked in (
        (words.VGPU_MEMORY, [share.memory * share.count for share in need.shares]),
        (words.VGPU_CORES, [share.cores * share.count for share in need.shares]),
        (words.VGPU_PERCENT, [share.percent * share.count for share in need.shares]),
    ):
        if name in amounts:
            amounts[name] = max(amounts[name], min(MAX_AMOUNT, sum(asked)))
    return requests_of(amounts)


def _vgpu_share(container: Container) -> CardShare | None:
    """Limits count, and requests where they are silent; a container that asks for memory alone means one card."""
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


def _most(pod: PodObject, resource: str) -> int:
    """As Volcano counts: all containers together, or the init container that asks for most."""
    spec = pod.spec
    together = sum(_amount(container, resource) or 0 for container in spec.containers)
    return max([together, *(_amount(container, resource) or 0 for container in spec.init_containers)])


def _amount(container: Container, resource: str) -> int | None:
    """Raises QuantityError."""
    resources = container.resources
    for amounts in (resources.limits, resources.requests) if resources is not None else ():
        if resource in amounts:
            return max(0, parse_quantity(amounts[resource]))
    return None


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(sorted({part.strip() for part in (text or "").split(",")} - {""}))


# Koordinator


def _koordinator(asked: Mapping[str, int], terms: Mapping[str, str]) -> DeviceNeed:
    problem = next((f"annotation {key} is not supported yet" for key in UNSUPPORTED if key in terms), "")
    problem = problem or _koordinator_problem(asked)
    if problem:
        return DeviceNeed(Family.KOORDINATOR, problem=problem)
    whole = asked.get(words.KOORDINATOR_GPU, 0)
    cores = whole or asked.get(words.KOORDINATOR_CORE, 0)
    ratio, memory = whole or asked.get(words.KOORDINATOR_RATIO, 0), asked.get(words.KOORDINATOR_MEMORY, 0)
    count = asked.get(words.KOORDINATOR_SHARED, 0) or max(1, ratio // FULL)
    share = CardShare(count, memory // count, ratio // count, cores // count)
    return DeviceNeed(Family.KOORDINATOR, (share,))


def _koordinator_problem(asked: Mapping[str, int]) -> str:
    if frozenset(asked) not in _COMBINATIONS:
        return f"{', '.join(sorted(asked))} cannot be asked for together"
    count = asked.get(words.KOORDINATOR_SHARED, 0)
    for name in (words.KOORDINATOR_GPU, words.KOORDINATOR_CORE, words.KOORDINATOR_RATIO):
        amount = asked.get(name, 0)
        if count and (amount % count or amount // count > FULL):
            return f"{name} {amount} cannot be shared out evenly over {count} GPUs, at most {FULL} of each"
        if not count and amount > FULL and amount % FULL:
            return f"{name} {amount} is more than {FULL} and not a multiple of it"
    return ""


# What a pod that is bound holds


def cards_of(pod: PodObject, need: DeviceNeed | None, signer: Signer) -> tuple[str, ...]:
    """The ids of its cards, as we have signed them; without that as its annotations say, which need not be true."""
    annotations, node = pod.metadata.annotations, pod.spec.node_name
    if not node or _RESULTS.isdisjoint(annotations):
        return ()
    planned = planned_cards(annotations, signer, pod.metadata.uid, node)
    if planned is not None:
        return planned
    return cards_named(need.family if need is not None else Family.KOORDINATOR, annotations)


_RESULTS = frozenset((DEVICE_PLAN, *RESULT_KEYS))
