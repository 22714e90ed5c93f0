"""The ceiling that byte counts are compared with: a large copy within one memory."""

import time

import torch

from lensbox.bench.timing import percentile

COPY_BYTES = {"cuda": 1 << 30, "cpu": 64 << 20}
COPIES = 10


def copy_bandwidth(device: torch.device) -> float:
    """Bytes a second of a copy, read plus written, with the current number of threads: median of 10."""
    count = COPY_BYTES[device.type] // 4
    source = torch.rand(count, device=device)
    destination = torch.empty_like(source)
    seconds = [
        _copy_on_gpu(source, destination) if device.type == "cuda" else _copy_on_cpu(source, destination)
        for _ in range(COPIES + 1)
    ]
    return 2 * 4 * count / percentile(seconds[1:], 0.5)


def cache_bytes(device: torch.device) -> int:
    """Size of a GPU's L2 cache; 0 for the CPU, whose inputs are never taken cold."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def _copy_on_gpu(source: torch.Tensor, destination: torch.Tensor) -> float:
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    destination.copy_(source)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _copy_on_cpu(source: torch.Tensor, destination: torch.Tensor) -> float:
    start = time.perf_counter()
    destination.copy_(source)
    return time.perf_counter() - start
