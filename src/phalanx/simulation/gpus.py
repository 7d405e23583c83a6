"""How GPUs are called and counted in traces."""

from __future__ import annotations

GPU = "nvidia.com/gpu"
# Thousandths of GPUs, where pods may ask for a part of one; which card it is of is decided with the node.
GPU_MILLI = "gpu-milli"
WHOLE_CARD = 1000
# The label of a node that says which model its GPUs are.
GPU_MODEL = "gpu-model"
