"""An exported program."""

from artifact_fixtures import program_path

__all__ = ["program_path"]
