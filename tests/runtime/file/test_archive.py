"""Open artifact files by their content.

`tests/runtimes/test_altered.py` has the refused files.
"""

from pathlib import Path

import pytest
from damaged_files import archive_of

from lensbox.common.errors import ArtifactError
from lensbox.runtime.file.archive import open_file, read_file
from lensbox.runtime.file.kinds import FileKind


@pytest.mark.parametrize(("fixture", "kind"), [("artifact_path", "torchscript"), ("onnx_path", "onnx")])
def test_opens_each_kind(fixture: str, kind: FileKind, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(fixture)
    file = open_file(read_file(path), "a file")
    assert file.kind == kind
    assert file.metadata.format_version == 2


def test_rejects_metadata_that_are_too_large() -> None:
    entries = [("a/archive_format", b""), ("a/extra/lensbox.json", b" " * ((16 << 20) + 1))]
    message = "^a file holds extra/lensbox.json of 16777217 bytes, which is too large"
    with pytest.raises(ArtifactError, match=message):
        open_file(archive_of(entries), "a file")
