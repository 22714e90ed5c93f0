"""What the processes of a service run. Imported by the supervisor, which needs none of it itself."""

from typing import Any

PRELOADED = (
    "lensbox.serve.processes.fork_server",
    "lensbox.serve.processes.engine_process",
    "lensbox.serve.processes.frontend_process",
)


def engine(*arguments: Any) -> None:
    """See `engine_process.main`."""
    from lensbox.serve.processes.engine_process import main

    main(*arguments)


def frontend(*arguments: Any) -> None:
    """See `frontend_process.main`."""
    from lensbox.serve.processes.frontend_process import main

    main(*arguments)
