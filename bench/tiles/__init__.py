"""`lensbox bench tiles`: tiles of large photographs, beside the photographs one by one."""
