"""The service as an application of Ray Serve, on one machine or a cluster."""
