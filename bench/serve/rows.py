"""What `lensbox bench serve --only` names, in the order in which it is run."""

ROWS = ("throughput", "latency", "canvases", "overload", "memory", "recovery", "litserve")
