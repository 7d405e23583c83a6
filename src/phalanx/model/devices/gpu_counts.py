"""Number of GPUs in a pod's requests, for lists: all vendors, whole GPUs and shares."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.model.devices import device_words as words

# Resources whose unit is one card, or a part that its vendor counts as one.
_COUNTED = frozenset(
    {
        "nvidia.com/gpu",
        "amd.com/gpu",
        "aliyun.com/gpu",
        words.VGPU_NUMBER,
        words.GPU_NUMBER,
    }
)
_COUNTED_PREFIXES = ("nvidia.com/mig-", "gpu.intel.com/i915", "gpu.intel.com/xe")
#: Thousandths of a GPU in traces; the node's allocator chooses the card.
GPU_MILLI = "gpu-milli"
# Resources in hundredths of a card.
_IN_PERCENT = frozenset({words.KOORDINATOR_GPU, words.KOORDINATOR_CORE})
# Amount of one card in other resources of parts. The memory is that of a usual card: it is no exact size.
_PARTS = {
    GPU_MILLI: 1000,
    words.KOORDINATOR_RATIO: 100,
    words.KOORDINATOR_MEMORY: 16 * 2**30,
    words.GPU_MEMORY: 16 * 2**10,
}


def is_gpu(resource: str) -> bool:
    return resource in _COUNTED or resource in _IN_PERCENT or resource.startswith(_COUNTED_PREFIXES)


def amount_of_card(resource: str) -> int:
    """Return the amount of a GPU resource that is one card; 0 for all other resources."""
    if resource in _IN_PERCENT:
        return 100
    return _PARTS.get(resource) or (1 if is_gpu(resource) else 0)


def gpu_percent(requests: Iterable[tuple[str, int]]) -> int:
    """Return the number of GPUs in (resource, count) pairs, in hundredths of a GPU."""
    counted = percent = 0
    for resource, amount in requests:
        if resource in _IN_PERCENT:
            percent = max(percent, amount)
        elif resource in _COUNTED or resource.startswith(_COUNTED_PREFIXES):
            counted += amount
    return 100 * counted + percent
