"""`lensbox sign`: keys, and signatures beside artifacts."""

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
    help="Make a pair of keys: FILE, to keep secret, and FILE.pub, for those who load what you sign.",
)
@click.option("--key", type=FILE, metavar="FILE", help="The private key to sign with.")
@click.option(
    "--artifact", "artifacts", type=FILE, multiple=True, metavar="FILE", help="File to sign. May be repeated."
)
def sign(new_key: Path | None, key: Path | None, artifacts: tuple[Path, ...]) -> None:
    """Sign artifacts, so that owners of your public key can verify that they are yours (--public-key).

    Writes FILE.sig beside each FILE. The paths of what is written go to stdout.
    """
    if (new_key is None) == (key is None and not artifacts):
        raise click.UsageError("give --new-key FILE alone, or --key FILE with --artifact FILE")
    if new_key is None and (key is None or not artifacts):
        raise click.UsageError("--key and --artifact must be given together")

    from lensbox.export.signing import make_keys, sign_file  # imports torch

    if new_key is not None:
        public_key = make_keys(new_key)
        _logger.info("%s signs and must stay secret; %s checks", new_key, public_key)
        click.echo(new_key)
        click.echo(public_key)
    elif key is not None:
        for artifact in artifacts:
            click.echo(sign_file(artifact, key))
