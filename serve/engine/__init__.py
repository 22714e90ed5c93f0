"""What computes with the artifact: jobs, taken together in batches by one thread a device."""
