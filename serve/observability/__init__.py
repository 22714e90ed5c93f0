"""Observe the service: logs, metrics, traces."""
