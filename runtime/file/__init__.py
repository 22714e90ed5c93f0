"""The file format of artifacts: what the export writes and the runtimes read."""
