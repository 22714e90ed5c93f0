"""What decides a run besides data, device and time."""
