"""Names and units of GPUs in traces."""

from __future__ import annotations

GPU = "nvidia.com/gpu"
# Thousandths of a GPU, for pods that request a part of one; the node's allocator chooses the card.
GPU_MILLI = "gpu-milli"
WHOLE_CARD = 1000
# Node label with the model of its GPUs.
GPU_MODEL = "gpu-model"
