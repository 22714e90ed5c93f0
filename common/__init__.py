"""Errors, options, reports and files that all commands share; and the `lensbox` command itself."""
