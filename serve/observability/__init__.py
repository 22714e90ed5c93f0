"""What an operator sees of the service: request ids, logs and metrics."""
