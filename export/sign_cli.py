"""`lensbox sign`: make keys and sign artifacts."""

import logging
from pathlib import Path

import click

from lensbox.common.command import FILE, Command

_logger = logging.getLogger(__name__)


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
