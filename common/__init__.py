"""What all commands share: errors, options, reports and files; and the `lensbox` command itself."""
