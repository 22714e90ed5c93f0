"""The formats of artifacts: how each kind of file is loaded, and how its `detect` is called."""
