"""What makes an artifact or an op library unusable: exit code 3, nothing on stdout, a message that helps."""

import os
import random
import shutil
import struct
import subprocess
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import PIL.Image
import pytest
import torch
from cpp_runtime.running import Completed, Rewrite, Run, SaveStandIn, save_script
from torch import Tensor, nn

from lensbox.artifact.metadata import METADATA_FILE
from lensbox.ops import library_path
from lensbox.runtime.formats.program import quiet_export
from lensbox.runtime.loading import load_artifact


def assert_refused(result: Completed, *parts: str) -> None:
    assert (result.code, result.stdout) == (3, ""), result.stderr
    assert result.stderr.startswith("lensbox_runner: ")
    for part in parts:
        assert part in result.stderr
    assert "Exception raised from" not in result.stderr  # the first line of torch's C++ stack traces


class Plain(nn.Module):
    """A module without Lensbox's metadata."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_an_exported_program_is_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "detector.program.pt2"
    with quiet_export():
        torch.export.save(torch.export.export(nn.ReLU(), (torch.zeros(2),)), path)
    for command in ("info", "selftest"):
        result = run(command, "--artifact", path, "--trusted")
        assert_refused(result, "detector.program.pt2: an exported program", "--format torchscript or aoti")


def test_a_flipped_bit_is_refused_or_changes_nothing(
    run: Run, artifact: Path, photo: Path, tmp_path: Path
) -> None:
    def detect(path: Path) -> Completed:
        return run("detect", "--artifact", path, "--image", photo, "--score-threshold", "0.01")

    expected = detect(artifact).json()
    assert expected["images"][0]["detections"]
    path = tmp_path / "flipped.pt"
    randomness = random.Random(0)
    refused = 0
    for _ in range(24):
        content = bytearray(artifact.read_bytes())
        content[randomness.randrange(len(content))] ^= 1 << randomness.randrange(8)
        path.write_bytes(content)
        result = detect(path)
        if result.code == 0:
            assert result.json() == expected
        else:
            assert_refused(result, "flipped.pt")
            refused += 1
    assert refused > 12


def test_a_rewritten_archive_is_as_good(run: Run, artifact: Path, tmp_path: Path) -> None:
    path = rewrite_entries(artifact, tmp_path / "same.pt", lambda entries: entries)
    result = run("selftest", "--artifact", path)
    assert result.code == 0, result.stderr


Entries = list[tuple[str, bytes]]


def rewrite_entries(artifact: Path, path: Path, change: Callable[[Entries], Entries]) -> Path:
    """Writes a copy of the archive whose entries, names and contents, went through a function."""
    with zipfile.ZipFile(artifact) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")  # of entries of the same name
        for name, content in change(entries):
            archive.writestr(name, content)
    return path


def test_another_zip_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/readme.txt", "text")
    assert_refused(run("info", "--artifact", path), "other.pt", "not a TorchScript file")


def test_saved_tensors(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"w": torch.zeros(3)}, path)
    assert_refused(run("info", "--artifact", path), "weights.pt", "torch.save")


def test_torchscript_without_metadata(run: Run, tmp_path: Path) -> None:
    path = save_script(Plain(), tmp_path / "plain.pt")
    assert_refused(
        run("selftest", "--artifact", path), "plain.pt", "without lensbox.json", "`lensbox export`"
    )


def test_a_newer_format(run: Run, rewrite: Rewrite) -> None:
    path = rewrite(lambda metadata: metadata.update(format_version=3, lensbox_version="9.9"))
    assert_refused(run("info", "--artifact", path), "format version 3", "reads up to 2", "9.9")


@pytest.mark.parametrize("key", ["format_version", "ops", "methods", "defaults", "canvas", "reading"])
def test_metadata_without_a_field(run: Run, rewrite: Rewrite, key: str) -> None:
    path = rewrite(lambda metadata: metadata.pop(key))
    assert_refused(run("selftest", "--artifact", path), "lensbox.json is damaged", key)


@pytest.mark.parametrize("content", ["", "{", "[]", "7"])
def test_metadata_that_is_no_object(run: Run, tmp_path: Path, content: str) -> None:
    path = save_script(Plain(), tmp_path / "plain.pt", _extra_files={METADATA_FILE: content})
    assert_refused(run("info", "--artifact", path), "lensbox.json is damaged")


@pytest.mark.parametrize("version", [0, -1, 1.0, True, "1", None, 1e300])
def test_a_format_version_that_is_none(run: Run, rewrite: Rewrite, version: object) -> None:
    path = rewrite(lambda metadata: metadata.update(format_version=version))
    assert_refused(
        run("info", "--artifact", path), "lensbox.json is damaged", "format_version must be an integer"
    )


def test_a_format_version_beyond_32_bits(run: Run, rewrite: Rewrite) -> None:
    path = rewrite(lambda metadata: metadata.update(format_version=2**32 + 1))
    assert_refused(run("info", "--artifact", path), f"format version {2**32 + 1}", "reads up to 2")


@pytest.mark.parametrize("content", ["[" * 200_000, '{"a":' * 200_000, "[" * 200_000 + "]" * 200_000])
def test_metadata_nested_too_deeply(run: Run, tmp_path: Path, content: str) -> None:
    path = save_script(Plain(), tmp_path / "deep.pt", _extra_files={METADATA_FILE: content})
    assert_refused(run("info", "--artifact", path), "deep.pt", "lensbox.json is damaged", "nested too deeply")


def test_metadata_with_a_key_twice(run: Run, artifact: Path, tmp_path: Path) -> None:
    metadata = load_artifact(artifact).metadata.to_json()
    twice = metadata.replace('"ops":', '"ops": [], "ops":', 1)
    path = save_script(Plain(), tmp_path / "twice.pt", _extra_files={METADATA_FILE: twice})
    assert_refused(run("info", "--artifact", path), "twice.pt", "lensbox.json is damaged", '"ops" twice')


@pytest.mark.parametrize("op", ["lensbox::g" + "(" * 200_000, "lensbox::g" + "(" * 2000, "lensbox::g"])
def test_an_op_schema_that_is_none(run: Run, rewrite: Rewrite, op: str) -> None:
    path = rewrite(lambda metadata: metadata["ops"].insert(0, op))
    assert_refused(run("selftest", "--artifact", path), "lensbox.json is damaged", "ops[0] must")


def test_a_record_that_is_too_short(run: Run, artifact: Path, tmp_path: Path) -> None:
    def shorten(entries: Entries) -> Entries:
        return [(name, content[:-4] if "/constants/" in name else content) for name, content in entries]

    path = rewrite_entries(artifact, tmp_path / "short.pt", shorten)
    assert_refused(run("selftest", "--artifact", path), "short.pt", "constants.pkl", "constants/0 must hold")


@pytest.mark.parametrize(
    ("pickle", "part"),
    [
        (b")" + b"\x85" * 200_000 + b".", "nested"),
        (
            b"ctorch.jit._pickle\nrestore_type_tag\n(]X"
            + struct.pack("<I", 7 * 200_000)
            + b"List[[[" * 200_000
            + b"tR.",
            "List[[[",
        ),
    ],
    ids=["tuples", "type"],
)
def test_a_pickle_nested_too_deeply(
    run: Run, artifact: Path, tmp_path: Path, pickle: bytes, part: str
) -> None:
    def exchange(entries: Entries) -> Entries:
        return [(name, pickle if name.endswith("/data.pkl") else content) for name, content in entries]

    path = rewrite_entries(artifact, tmp_path / "deep.pt", exchange)
    assert_refused(run("selftest", "--artifact", path), "deep.pt", "data.pkl", part)


def test_tuples_that_share_their_items_take_no_time(run: Run, artifact: Path, tmp_path: Path) -> None:
    """Each of 60 tuples holds the one before it twice: 2**60 paths to the first."""
    shared = b"\x80\x02)q\x00" + b"".join(
        b"h" + bytes([n]) + b"h" + bytes([n]) + b"\x86q" + bytes([n + 1]) for n in range(60)
    )
    path = rewrite_entries(
        artifact,
        tmp_path / "shared.pt",
        lambda entries: [*entries, (entries[0][0].partition("/")[0] + "/code/x.py.debug_pkl", shared + b".")],
    )
    assert run("info", "--artifact", path).code in (0, 3)  # the runner's time limit is what counts


@pytest.mark.parametrize(("name", "what"), [("code/x.py", "code"), ("code/x.py.debug_pkl", "pickles")])
def test_code_and_pickles_are_bounded(run: Run, artifact: Path, tmp_path: Path, name: str, what: str) -> None:
    def enlarge(entries: Entries) -> Entries:
        return [*entries, (entries[0][0].partition("/")[0] + "/" + name, b"a" * (4 << 20))]

    path = rewrite_entries(artifact, tmp_path / "large.pt", enlarge)
    assert_refused(run("info", "--artifact", path), f"bytes of {what}, at most 4194304 are read")


def test_metadata_behind_a_nul_character(run: Run, artifact: Path, tmp_path: Path) -> None:
    metadata = load_artifact(artifact).metadata.to_json()
    path = save_script(Plain(), tmp_path / "nul.pt", _extra_files={METADATA_FILE: metadata + "\0[[["})
    assert_refused(run("info", "--artifact", path), "lensbox.json is damaged", "NUL")


class Writing(nn.Module):
    """Writes a file while it is loaded."""

    x: int

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.x = 3
        self.path = str(path)

    @torch.jit.export
    def __getstate__(self) -> tuple[int, str, bool]:
        return self.x, self.path, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[int, str, bool]) -> None:
        self.x, self.path, self.training = state
        torch.save(torch.ones(2), self.path)

    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize("command", ["info", "selftest"])
def test_code_that_writes_files_is_refused_before_it_runs(
    run: Run, save_stand_in: SaveStandIn, tmp_path: Path, command: str
) -> None:
    written = tmp_path / "written"
    path = save_stand_in(Writing(written))
    result = run(command, "--artifact", path)
    assert_refused(
        result, "stand_in.pt", "code/__torch__", ".py, line", "torch.save", "--trusted", "runs its code"
    )
    assert not written.exists()


def test_trusted_code_is_run(run: Run, save_stand_in: SaveStandIn, tmp_path: Path) -> None:
    written = tmp_path / "written"
    path = save_stand_in(Writing(written))
    result = run("info", "--trusted", "--artifact", path)
    assert result.code == 0, result.stderr
    assert not written.exists()
    assert_refused(run("selftest", "--trusted", "--artifact", path), "has no method preprocess")
    assert written.exists()


@pytest.mark.parametrize(
    ("part", "instead"), [("/code/", "/CODE/"), (".py", ".PY")], ids=["folder", "suffix"]
)
def test_code_under_another_name_is_refused(
    run: Run, save_stand_in: SaveStandIn, tmp_path: Path, part: str, instead: str
) -> None:
    # torch's reader ignores case.
    written = tmp_path / "written"

    def rename(entries: Entries) -> Entries:
        return [(name.replace(part, instead), content) for name, content in entries]

    path = rewrite_entries(save_stand_in(Writing(written)), tmp_path / "renamed.pt", rename)
    assert_refused(run("selftest", "--artifact", path), instead.strip("/"), "not as torch writes it")
    assert not written.exists()


def test_code_nested_too_deeply(run: Run, artifact: Path, tmp_path: Path) -> None:
    def nest(entries: Entries) -> Entries:
        deep = b"def f(x: int) -> int:\n  return " + b"-" * 200_000 + b"x\n"
        return [(name, content + deep * name.endswith(".py")) for name, content in entries]

    path = rewrite_entries(artifact, tmp_path / "deep.pt", nest)
    assert_refused(run("selftest", "--artifact", path), "deep.pt", "nested too deeply")


def test_no_op_library(run: Run, artifact: Path) -> None:
    result = run("selftest", "--artifact", artifact, ops=None)
    assert_refused(result, "lensbox::letterbox", "not registered", "--ops", "LENSBOX_OPS_LIBRARY")
    assert "Unknown builtin op" not in result.stderr


def test_a_library_that_lacks_an_op(run: Run, rewrite: Rewrite) -> None:
    path = rewrite(lambda metadata: metadata["ops"].append("lensbox::new_op(Tensor x) -> Tensor"))
    assert_refused(
        run("selftest", "--artifact", path), "lensbox::new_op", "not registered", str(library_path())
    )


def test_an_op_with_another_schema(run: Run, rewrite: Rewrite) -> None:
    other = "lensbox::masked_giou_loss(Tensor pred, int[] target) -> Tensor"
    path = rewrite(lambda metadata: metadata.update(ops=[other]))
    assert_refused(
        run("selftest", "--artifact", path), "another schema", "int[] target", "Tensor? weight", "--ops"
    )


def test_an_op_that_gained_an_argument_with_a_default(run: Run, rewrite: Rewrite) -> None:
    older = "lensbox::masked_giou_loss(Tensor pred, Tensor target) -> Tensor"
    path = rewrite(lambda metadata: metadata.update(ops=[older]))
    result = run("selftest", "--artifact", path)
    assert result.code == 0, result.stderr


def test_absent_op_library(run: Run, artifact: Path) -> None:
    assert_refused(run("selftest", "--artifact", artifact, "--ops", "no/lib.so"), "no/lib.so: no such file")
    assert_refused(run("selftest", "--artifact", artifact, ops="no/env.so"), "no/env.so: no such file")


def test_an_op_library_that_is_none(run: Run, artifact: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.so"
    path.write_text("text")
    assert_refused(
        run("selftest", "--artifact", artifact, "--ops", path),
        str(path),
        "linker",
        f"torch {minor_version()}",
    )


def test_an_op_library_with_a_symbol_that_is_not_there(run: Run, artifact: Path, tmp_path: Path) -> None:
    library = compile_library(
        tmp_path, 'extern "C" void not_in_this_torch(); void f() { not_in_this_torch(); }'
    )
    result = run("selftest", "--artifact", artifact, "--ops", library)
    assert_refused(result, str(library), "not_in_this_torch", f"torch {minor_version()}")


def test_an_op_library_for_another_torch(run: Run, artifact: Path, tmp_path: Path) -> None:
    record = "lensbox-build version=0.1.0 torch=1.4.0+cu92 backends=cpu,cuda"
    library = compile_library(tmp_path, f'extern const char record[]; const char record[] = "{record}";')
    result = run("selftest", "--artifact", artifact, "--ops", library)
    assert_refused(result, str(library), "another version of torch", record, f"torch {minor_version()}")


@pytest.mark.parametrize("size", [64, 1000, 100_000])
def test_an_op_library_that_is_cut_off(run: Run, artifact: Path, tmp_path: Path, size: int) -> None:
    path = tmp_path / "cut.so"
    path.write_bytes(Path(library_path()).read_bytes()[:size])
    assert_refused(
        run("selftest", "--artifact", artifact, "--ops", path), str(path), "cut off", f"{size} bytes"
    )


def minor_version() -> str:
    return ".".join(torch.__version__.split(".")[:2])


def compile_library(folder: Path, source: str) -> Path:
    (folder / "library.cpp").write_text(source)
    library = folder / "library.so"
    compiler = os.environ.get("CXX", "c++")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, folder / "library.cpp"], check=True, capture_output=True
    )
    return library


def test_an_op_library_beside_the_program_is_found(
    run: Run, runner: Path, artifact: Path, tmp_path: Path
) -> None:
    program = tmp_path / "lensbox_runner"
    shutil.copy2(runner, program)
    shutil.copy2(library_path(), tmp_path / "liblensbox_ops.so")
    result = run("selftest", "--artifact", artifact, ops=None, program=program)
    assert result.code == 0, result.stderr


class StandIn(nn.Module):
    """The methods of a detector that finds nothing, and talks."""

    @torch.jit.export
    def preprocess(self, images: list[Tensor], windows: Tensor) -> tuple[Tensor, Tensor]:
        print("preprocess was called")
        return torch.zeros([len(images), 1, 256, 256], dtype=torch.uint8), torch.ones(len(images), 6)

    @torch.jit.export
    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        return torch.zeros(1, 256, 4), torch.zeros(1, 256), torch.zeros(1, dtype=torch.int32)

    @torch.jit.export
    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        return boxes


class Raising(StandIn):
    @torch.jit.export
    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        if boxes.dim() == 3:
            raise ValueError("this detector gives up")
        return boxes


class WrongTuple(StandIn):
    @torch.jit.export
    def restore(self, boxes: Tensor, geometry: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return boxes, geometry


class WrongShape(StandIn):
    @torch.jit.export
    def restore(self, boxes: Tensor, geometry: Tensor) -> Tensor:
        return torch.zeros(7, 4)


class WrongCanvases(StandIn):
    @torch.jit.export
    def preprocess(self, images: list[Tensor], windows: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros([1, 256, 256], dtype=torch.uint8), torch.ones(6)


class WrongCount(StandIn):
    @torch.jit.export
    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        return torch.zeros(1, 256, 4), torch.zeros(1, 256), torch.full([1], 257, dtype=torch.int32)


class WrongBatch(StandIn):
    @torch.jit.export
    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        return torch.zeros(2, 256, 4), torch.zeros(2, 256), torch.zeros(2, dtype=torch.int32)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    PIL.Image.new("L", (8, 8)).save(path)
    return path


def test_what_an_artifact_prints_goes_to_stderr(run: Run, save_stand_in: SaveStandIn, photo: Path) -> None:
    result = run("detect", "--artifact", save_stand_in(StandIn()), "--image", photo)
    assert result.code == 0, result.stderr
    assert result.json() == {"images": [{"file": str(photo), "width": 8, "height": 8, "detections": []}]}
    assert result.stderr == "preprocess was called\n"


@pytest.mark.parametrize(
    ("module", "parts"),
    [
        (Plain(), ["has no method preprocess"]),
        (Raising(), ["method restore failed", "this detector gives up"]),
        (WrongTuple(), ["method restore must return 1 tensor", "Tuple"]),
        (WrongShape(), ["method restore must keep the shape [1, 256, 4]", "[7, 4]"]),
        (
            WrongCanvases(),
            ["method preprocess must return canvases [B, C, H, W]", "[1, 256, 256] and [6] for 1"],
        ),
        (WrongCount(), ["method detect must return counts of 0 to 256, got 257"]),
        (WrongBatch(), ["method detect must return boxes [B, K, 4]", "[2, 256, 4]", "for 1"]),
    ],
)
def test_an_artifact_that_does_not_keep_the_contract(
    run: Run, save_stand_in: SaveStandIn, photo: Path, module: nn.Module, parts: list[str]
) -> None:
    result = run("detect", "--artifact", save_stand_in(module), "--image", photo)
    start = result.stderr.find("lensbox_runner: ")  # after what the stand-in prints
    assert_refused(Completed(result.code, result.stdout, result.stderr[start:]), "stand_in.pt", *parts)


def test_an_artifact_without_loss(run: Run, save_stand_in: SaveStandIn, tmp_path: Path) -> None:
    boxes = tmp_path / "boxes.json"
    boxes.write_text("[[0, 0, 1, 1]]")
    result = run("loss", "--artifact", save_stand_in(StandIn()), "--predictions", boxes, "--targets", boxes)
    assert_refused(result, "has no method loss")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"\xff\xd8\xff\xe0 and so on", "but an image"),
        (b"\x10\0\0\0\0\0\0\0{}", "but holds weights: `lensbox export --weights` takes it"),
    ],
)
def test_what_a_file_is_instead(run: Run, tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "other.pt"
    path.write_bytes(content)
    assert_refused(run("info", "--artifact", path), "other.pt: not a TorchScript file", reason)
