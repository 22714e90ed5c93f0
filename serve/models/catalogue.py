"""The files of models: one artifact, or a folder with DIR/<name>/<version>.pt, .pt2 or .onnx."""

import re
from collections.abc import Mapping
from pathlib import Path

from lensbox.common.errors import ArtifactError, no_such_artifact, system_reason

SUFFIXES = (".pt", ".pt2", ".onnx")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")

ONE = ""
"""The key of the only model of a service with --artifact. The artifact's metadata have its name."""


class Catalogue:
    """The models and versions that lie on the disk now. Nothing is cached.

    artifact: the file of the only model, or None. models: the folder of models, or None.
    """

    def __init__(self, artifact: Path | None, models: Path | None) -> None:
        self._artifact = artifact
        self._models = models

    @property
    def source(self) -> Path:
        """The file or the folder, for messages."""
        source = self._artifact or self._models
        assert source is not None
        return source

    def names(self) -> list[str]:
        """Return the names of all models that have a version, in order. Raises ArtifactError."""
        if self._models is None:
            return [ONE]
        try:
            folders = sorted(path.name for path in self._models.iterdir() if path.is_dir())
        except OSError as error:
            reason = system_reason(error)
            raise ArtifactError(f"the folder of models {self._models} cannot be read: {reason}") from error
        return [name for name in folders if _NAME.fullmatch(name) and self.versions(name)]

    def versions(self, name: str) -> Mapping[int, Path]:
        """Return the files of a model by version, the newest last. Raises ArtifactError.

        The file of a service with --artifact has no version of its own, and the number 0 here.
        """
        if self._models is None:
            return {0: self.source} if name == ONE else {}
        if not _NAME.fullmatch(name):
            return {}
        found: dict[int, Path] = {}
        try:
            files = sorted((self._models / name).iterdir())
        except OSError:  # no such folder
            return {}
        for path in files:
            if path.suffix in SUFFIXES and _NUMBER.fullmatch(path.stem):
                number = int(path.stem)
                if number in found:
                    rule = f"version {number} of {name!r} must be one file"
                    raise ArtifactError(f"{rule}, got {found[number].name} and {path.name}")
                found[number] = path
        return dict(sorted(found.items()))

    def choose(self, name: str, version: int | None) -> tuple[int, Path]:
        """Return number and file of a version, by default the newest. Raises ArtifactError."""
        if self._models is None and version is not None:
            raise ArtifactError(f"version must be left out for a service of one file, got {version}")
        versions = self.versions(name)
        if not versions:
            raise ArtifactError(f"there is no {self.source / name}/<version>, a number with {_or(SUFFIXES)}")
        number = max(versions) if version is None else version
        if number not in versions:
            known = ", ".join(map(str, versions))
            raise ArtifactError(f"version of {name!r} must be one of {known}, got {number}")
        return number, versions[number]

    def check(self) -> None:
        """Raise ArtifactError unless there is something to serve."""
        if self._models is None:
            if self.source.is_dir():
                raise ArtifactError(
                    f"artifact must be a file, got the folder {self.source}; --models takes folders"
                )
            if not self.source.is_file():
                raise ArtifactError(no_such_artifact(self.source))
        elif not self.names():
            raise ArtifactError(f"models must hold {self._models}/<name>/<version>.pt, got no such file")


def _or(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
