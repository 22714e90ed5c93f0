"""The project's own benchmarks: `lensbox bench ops`, `article` and `serve`.

Importing this package does not import torch.
"""

OPS_GROUPS = ("headline", "weighted", "nms", "pairwise", "letterbox", "sizes")
