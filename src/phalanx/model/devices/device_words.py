"""Annotations and resources for shared GPUs, of pods, schedulers and device plugins.

Volcano's are those of its device packages (api/devices/nvidia/vgpu and gpushare), Koordinator's those of
apis/extension/device_share.go.
"""

from __future__ import annotations

# Volcano's vGPU
VGPU_NUMBER = "volcano.sh/vgpu-number"
VGPU_MEMORY = "volcano.sh/vgpu-memory"
VGPU_PERCENT = "volcano.sh/vgpu-memory-percentage"
VGPU_CORES = "volcano.sh/vgpu-cores"
VGPU_REGISTER = "volcano.sh/node-vgpu-register"
VGPU_MODE = "volcano.sh/vgpu-mode"
VGPU_USE_IDS = "volcano.sh/vgpu-use-gpuuuid"
VGPU_OTHER_IDS = "volcano.sh/vgpu-nouse-gpuuuid"
VGPU_GROUP_POLICY = "volcano.sh/vgpu-podgroup-policy"
USE_KINDS = "nvidia.com/use-gputype"
OTHER_KINDS = "nvidia.com/nouse-gputype"
VGPU_NODE = "volcano.sh/vgpu-node"
VGPU_TIME = "volcano.sh/vgpu-time"
VGPU_IDS = "volcano.sh/vgpu-ids-new"
VGPU_TO_ALLOCATE = "volcano.sh/devices-to-allocate"
BIND_TIME = "volcano.sh/bind-time"
BIND_PHASE = "volcano.sh/bind-phase"

# Cards that serve no new pods, by UUID; pods on them run on (HAMi)
DEVICE_CORDON = "hami.io/device-cordon"

# Volcano's first GPU sharing
GPU_MEMORY = "volcano.sh/gpu-memory"
GPU_NUMBER = "volcano.sh/gpu-number"
GPU_UNHEALTHY = "volcano.sh/gpu-unhealthy-ids"
GPU_INDEX = "volcano.sh/gpu-index"
PREDICATE_TIME = "volcano.sh/predicate-time"

# Koordinator
KOORDINATOR_GPU = "koordinator.sh/gpu"
KOORDINATOR_SHARED = "koordinator.sh/gpu.shared"
KOORDINATOR_CORE = "koordinator.sh/gpu-core"
KOORDINATOR_MEMORY = "koordinator.sh/gpu-memory"
KOORDINATOR_RATIO = "koordinator.sh/gpu-memory-ratio"
DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"
DEVICE_HINT = "scheduling.koordinator.sh/device-allocate-hint"
DEVICE_JOINT = "scheduling.koordinator.sh/device-joint-allocate"
GPU_PARTITION = "scheduling.koordinator.sh/gpu-partition-spec"
