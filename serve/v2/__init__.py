"""Open Inference Protocol v2 with binary tensors: what clients of Triton and KServe speak."""
