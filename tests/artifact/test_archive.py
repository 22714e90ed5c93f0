"""Open artifact files by their content; reject other files with the reason."""

from pathlib import Path

import pytest
from damaged_files import archive_of, rewritten

from lensbox.artifact.archive import FileKind, open_file, read_file
from lensbox.common.errors import ArtifactError


@pytest.mark.parametrize(
    ("fixture", "kind"),
    [("artifact_path", "torchscript"), ("onnx_path", "onnx")],
)
def test_opens_each_kind(fixture: str, kind: FileKind, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(fixture)
    file = open_file(read_file(path), "a file")
    assert file.kind == kind
    assert file.metadata.format_version == 2
    assert not file.libraries


def test_reads_carried_libraries(artifact_path: Path) -> None:
    def change(entries: dict[str, bytes]) -> None:
        folder = next(iter(entries)).partition("/")[0]
        entries[f"{folder}/extra/ops/a.so"] = b"code"

    assert open_file(rewritten(artifact_path.read_bytes(), change), "a file").libraries == {"a.so": b"code"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not an artifact: it is empty"),
        (b"text", "is not an artifact, which begins as a zip archive or an ONNX model"),
        (b"\xff\xd8\xff", "is not an artifact but an image"),
        (b"\x10\0\0\0\0\0\0\0{", "is not an artifact but holds weights"),
        (b"PK\3\4", "is damaged or no artifact: it does not end with a seal"),
        (b"\x08\x07", "is damaged or no artifact: it does not end with a seal"),
        (archive_of([("a/b", b"")]), "is not an artifact but another zip archive"),
        (archive_of([("a/data.pkl", b"")]), "is not a TorchScript file: it holds no code"),
        (
            archive_of([("a/data.pkl", b""), ("a/constants.pkl", b"")]),
            "is not a Lensbox artifact: it holds no lensbox.json",
        ),
        (
            archive_of([("a/archive_format", b""), ("a/extra/lensbox.json", b" " * ((16 << 20) + 1))]),
            "holds extra/lensbox.json of 16777217 bytes, which is too large",
        ),
    ],
)
def test_rejects_other_files(data: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=f"^a file {message}"):
        open_file(data, "a file")


def test_rejects_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=f"^there is no file nothing.pt in {tmp_path}; "):
        read_file(tmp_path / "nothing.pt")
    with pytest.raises(ArtifactError, match="must be an artifact file, got the folder"):
        read_file(tmp_path)
