"""Compute jobs with the artifact: one thread per device takes queued jobs in batches."""
