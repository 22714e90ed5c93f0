"""Altered and badly signed artifacts: Python and C++ refuse the same ones, before they run them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from damaged_files import archive_of, put, rewritten, seal, with_bit_flipped, with_metadata, without
from photo_pixels import cpp_artifacts
from runner_answers import answer, refusal
from signing_keys import BAD_PUBLIC_KEYS, BAD_SIGNATURES, signature_of, write_signed

from lensbox.runtime import ArtifactError, load_artifact
from lensbox.runtime.torchscript import quiet_torchscript

Write = Callable[[bytes, Path], object]


def _content(change: Callable[[bytes], bytes]) -> Write:
    return lambda data, path: path.write_bytes(change(data))


def _metadata(key: str, value: object) -> Write:
    return _content(lambda data: rewritten(data, with_metadata(put(key, value))))


def _saved_tensors(data: bytes, path: Path) -> None:
    torch.save({"w": torch.zeros(3)}, path)
    seal(path)


class _Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def _plain_torchscript(data: bytes, path: Path) -> None:
    with quiet_torchscript():
        torch.jit.save(torch.jit.script(_Plain()), path)


def _plain_program(data: bytes, path: Path) -> None:
    torch.export.save(torch.export.export(_Plain(), (torch.zeros(3),)), path)


def _weights_zeroed(entries: dict[str, bytes]) -> None:
    entries.update({name: bytes(len(content)) for name, content in entries.items() if "/constants/" in name})


_BOXES = "self_test.tolerance.cpu.boxes"
# How to write an altered copy, and patterns of the errors: one for both runtimes, or Python's and C++'s.
REFUSED: dict[str, tuple[Any, ...]] = {
    "missing": (lambda data, path: None, "there is no file", "no such file"),
    "a folder": (lambda data, path: path.mkdir(), "must be an artifact", "not a file"),
    "empty": (_content(lambda data: b""), "not an artifact.* empty"),
    "text": (_content(lambda data: b"text" * 99), "not an artifact"),
    "an image": (_content(lambda data: b"\xff\xd8\xff\xe0 and so on"), "not an artifact.* image"),
    "weights": (_content(lambda data: b"\x10\0\0\0\0\0\0\0{}"), "holds weights"),
    "another archive": (_content(lambda data: archive_of([("a/b", b"")])), "as an archive of torch"),
    "saved tensors": (_saved_tensors, "holds no code"),
    "plain TorchScript": (_plain_torchscript, "not an artifact but a plain TorchScript file"),
    "a plain program": (_plain_program, "not an artifact but a plain program or package"),
    "a checkpoint": (
        lambda data, path: torch.save({"w": torch.zeros(3)}, path),
        "not an artifact but a checkpoint of torch.save: .*--weights",
    ),
    "an old checkpoint": (
        lambda data, path: torch.save({}, path, _use_new_zipfile_serialization=False),
        "not an artifact but a pickle",
    ),
    "a plain ONNX model": (
        _content(lambda data: b"\x08\x08" * 99),
        "plain ONNX model: it does not end with a seal",
    ),
    "without metadata": (
        _content(lambda data: rewritten(data, without("/extra/lensbox.json"))),
        "holds no lensbox.json",
    ),
    "flipped bit": (_content(lambda data: with_bit_flipped(data, len(data) // 2)), "seal"),
    "cut off": (_content(lambda data: data[:-1]), "seal"),
    "a byte added": (_content(lambda data: data + b"\0"), "seal"),
    "bytes before": (_content(lambda data: b"PK\3\4" + data), "seal"),
    "infinite tolerance": (_metadata(_BOXES, float("inf")), "Infinity", "unusable"),
    "newer": (_metadata("format_version", 4), "format version"),
}
# What the report of the self-test names; "" if the test passes.
SELF_TESTED: dict[str, tuple[Write, str]] = {
    "other expected boxes": (_metadata("self_test.expected.boxes.0.0", 99.0), "detection"),
    "other weights": (_content(lambda data: rewritten(data, _weights_zeroed)), "expected"),
    "other tolerance": (_metadata(_BOXES, 1e30), ""),
    "no ops": (_metadata("ops", []), ""),
}


def test_refused_files(artifact_path: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"{index}.pt" for index in range(len(REFUSED))]
    for path, (write, message, *_) in zip(paths, REFUSED.values(), strict=True):
        write(artifact_path.read_bytes(), path)
        with pytest.raises(ArtifactError, match=message) as caught:
            load_artifact(path)
        assert path.name in str(caught.value)
    theirs = cpp_artifacts(*((path, "") for path in paths))
    for path, (_, *messages), found in zip(paths, REFUSED.values(), theirs, strict=True):
        assert re.search(rf"artifact {path}: .*{messages[-1]}", found["error"])
    assert "no such file" in refusal(3, "selftest", "--artifact", paths[0])


@pytest.mark.parametrize(("write", "failure"), SELF_TESTED.values(), ids=SELF_TESTED)
def test_self_test_of_an_altered_file(
    write: Write, failure: str, artifact_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "altered.pt"
    write(artifact_path.read_bytes(), path)
    report = load_artifact(path).self_test()
    assert report.passed == (not failure), report.failures
    document = answer("selftest", "--artifact", path, code=3 if failure else 0)
    for failures in (report.failures, document["failures"]):
        assert failure in " ".join(failures)


def test_bad_signatures_and_keys(artifact_path: Path, tmp_path: Path) -> None:
    data = artifact_path.read_bytes()
    cases = []
    for case, (signature, message) in BAD_SIGNATURES.items():
        (tmp_path / case).mkdir()
        cases.append((*write_signed(tmp_path / case, data, signature(data)), rf"signed\.pt.* {message}"))
    load_artifact(cases[0][0])
    for case, content in BAD_PUBLIC_KEYS.items():
        (tmp_path / f"key {case}").mkdir()
        path, key = write_signed(tmp_path / f"key {case}", data, signature_of(data))
        key.write_bytes(content)
        cases.append((path, key, r"release\.key\.pub:? .*Ed25519 public key"))
    theirs = cpp_artifacts(*((path, key) for path, key, _ in cases))
    for (path, key, message), found in zip(cases, theirs, strict=True):
        with pytest.raises(ArtifactError, match=message):
            load_artifact(path, public_key=key)
        assert re.search(message, found["error"])


@pytest.mark.parametrize("kind", ["artifact_path", "program_path"])
def test_a_signed_file(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    data = request.getfixturevalue(kind).read_bytes()
    path, key = write_signed(tmp_path, data, signature_of(data))
    load_artifact(path, public_key=key)
    assert answer("selftest", "--artifact", path, "--public-key", key)["passed"]
    path.write_bytes(with_bit_flipped(data, 1000))
    with pytest.raises(ArtifactError, match="seal"):
        load_artifact(path, public_key=key)
    assert "seal" in refusal(3, "info", "--artifact", path, "--public-key", key)
    key.unlink()
    with pytest.raises(ArtifactError, match=r"public key .*release\.key\.pub"):
        load_artifact(path, public_key=key)
    assert f"public key {key}: no such file" in refusal(3, "info", "--artifact", path, "--public-key", key)
