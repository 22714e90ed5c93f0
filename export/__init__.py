"""From a detector in Python to an artifact that any runtime can load: `save_artifact`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lensbox.export.pipeline import save_artifact
    from lensbox.export.plan import ExportOptions

__all__ = ["ExportOptions", "save_artifact"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: the command checks its options without torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lensbox.export import pipeline

    return getattr(pipeline, name)
