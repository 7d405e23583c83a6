"""Names and units of GPUs in traces."""

from __future__ import annotations

from phalanx.model.devices.gpu_counts import GPU_MILLI as GPU_MILLI

GPU = "nvidia.com/gpu"
WHOLE_CARD = 1000
# Node label with the model of its GPUs.
GPU_MODEL = "gpu-model"
