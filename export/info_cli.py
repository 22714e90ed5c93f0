"""`lensbox info`: describe an artifact or this installation."""

from pathlib import Path

import click

from lensbox.common.command import FILE, Command


@click.command(cls=Command)
@click.argument("file", required=False, type=FILE, metavar="[FILE]")
@click.option(
    "--json", "as_json", is_flag=True, show_default=False, help="Print the stored metadata as JSON."
)
def info(file: Path | None, as_json: bool) -> None:
    """Describe an artifact of any format without running its code.

    Without FILE, print the versions and devices of this installation, for bug reports.
    """
    if file is None:
        if as_json:
            raise click.UsageError("--json must come with a FILE")
        from lensbox.runtime.info import report

        lines = report()
    else:
        # Imported here because torch takes seconds to load: `--help` must not wait.
        from lensbox.artifact.archive import open_file, read_file
        from lensbox.runtime.info import describe_artifact

        data = read_file(file)
        if as_json:
            click.echo(open_file(data, str(file)).metadata.to_json())
            return
        lines = describe_artifact(data, str(file))
    for name, value in lines:
        click.echo(f"{name}: {value}")
