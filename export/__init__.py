"""From a detector in Python to an artifact that any runtime can load: `save_artifact`."""

from typing import TYPE_CHECKING, Any

from lensbox.export.options import ExportOptions

if TYPE_CHECKING:
    from lensbox.export.pipeline import save_artifact

__all__ = ["ExportOptions", "save_artifact"]


def __getattr__(name: str) -> Any:
    """Import `save_artifact` when it is asked for: the command checks its options without torch."""
    if name != "save_artifact":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lensbox.export.pipeline import save_artifact

    return save_artifact
