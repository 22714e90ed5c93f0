"""The service in several processes: front ends that speak HTTP and decode, and an engine for each device.

Nothing is imported here. The supervisor, which starts and watches them, does not need torch.
"""
