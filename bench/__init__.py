"""The project's own benchmarks: `lensbox bench ops`, `article`, `detector`, `photo`, `tiles` and `serve`.

Importing this package does not import torch.
"""

OPS_GROUPS = ("headline", "weighted", "transfer", "nms", "cpu", "pairwise", "exercise", "sizes")
SERVE_ROWS = ("throughput", "latency", "canvases", "overload", "memory", "litserve")
