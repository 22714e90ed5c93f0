"""`lensbox info` and `lensbox sign`: describe an artifact or this installation, make keys, sign artifacts."""

import logging
from pathlib import Path

import click

from lensbox.cli.command import FILE, OPS, Command

_logger = logging.getLogger(__name__)


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
        from lensbox.runtime.file.archive import open_file, read_file
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
        lines = list(describe_artifact(data, str(file)))
    for name, value in lines:
        click.echo(f"{name}: {value}")


@click.command(cls=Command)
@click.option(
    "--new-key",
    type=FILE,
    metavar="FILE",
    help="Make a key pair: the private key FILE, to keep secret, and the public key FILE.pub.",
)
@click.option("--key", type=FILE, metavar="FILE", help="The private key to sign with.")
@click.option(
    "--artifact", "artifacts", type=FILE, multiple=True, metavar="FILE", help="File to sign. May be repeated."
)
def sign(new_key: Path | None, key: Path | None, artifacts: tuple[Path, ...]) -> None:
    """Sign artifacts, so that your public key verifies their origin (--public-key).

    Writes FILE.sig for each FILE. Prints the paths of written files to stdout.
    """
    if (new_key is None) == (key is None and not artifacts):
        raise click.UsageError("give either --new-key FILE, or --key FILE with --artifact FILE")
    if new_key is None and (key is None or not artifacts):
        raise click.UsageError("--key and --artifact must be given together")

    from lensbox.export.signing import make_keys, sign_file  # imports torch

    if new_key is not None:
        public_key = make_keys(new_key)
        _logger.info("%s is the private key and must stay secret; %s is the public key", new_key, public_key)
        click.echo(new_key)
        click.echo(public_key)
    elif key is not None:
        for artifact in artifacts:
            click.echo(sign_file(artifact, key))
