"""`lensbox info`: describe an artifact or this installation."""

from pathlib import Path

import click

from lensbox.common.command import FILE, OPS, Command


@click.command(cls=Command)
@click.argument("file", required=False, type=FILE, metavar="[FILE]")
@OPS
@click.option(
    "--json", "as_json", is_flag=True, show_default=False, help="Print the stored metadata as JSON."
)
def info(file: Path | None, ops: tuple[Path, ...], as_json: bool) -> None:
    """Describe an artifact of any format without running its code.

    With --ops, check that the libraries have the artifact's operators; their code runs.
    Without FILE, print the versions and devices of this installation, for bug reports.
    """
    if file is None:
        if as_json or ops:
            raise click.UsageError(f"{'--json' if as_json else '--ops'} must come with a FILE")
        from lensbox.runtime.info import report

        lines = report()
    else:
        # Imported here because torch takes seconds to load: `--help` must not wait.
        from lensbox.artifact.archive import open_file, read_file
        from lensbox.runtime.info import describe_artifact
        from lensbox.runtime.op_library import load_op_libraries, require_ops

        data = read_file(file)
        metadata = open_file(data, str(file)).metadata
        if ops:
            load_op_libraries(ops)
            require_ops(str(file), metadata.ops)
        if as_json:
            click.echo(metadata.to_json())
            return
        lines = describe_artifact(data, str(file))
    for name, value in lines:
        click.echo(f"{name}: {value}")
