"""The commands: `lensbox detect`, `lensbox bench`, and what all commands share."""
