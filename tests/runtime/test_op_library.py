"""Operators that a file needs, and op libraries that cannot be loaded.

`tests/examples/test_custom_op.py` loads a library.
"""

import shutil
from pathlib import Path

import pytest
from damaged_files import rewritten, with_metadata

from lensbox.ops import library_path
from lensbox.runtime import ArtifactError, load_artifact
from lensbox.runtime.op_library import load_op_libraries


def test_rejects_other_files(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"--ops must be a shared library, got .*/none\.so"):
        load_op_libraries([tmp_path / "none.so"])
    (tmp_path / "text.so").write_text("no machine code")
    with pytest.raises(ArtifactError, match=r"text\.so cannot be loaded: .*(invalid ELF|file too short)"):
        load_op_libraries([tmp_path / "text.so"])


def test_rejects_a_second_library_of_lensbox(tmp_path: Path) -> None:
    """Registering its operators twice would end the process."""
    load_op_libraries([library_path()])
    copy = shutil.copy(library_path(), tmp_path)
    with pytest.raises(ArtifactError, match="must be a library of your own operators, got Lensbox's"):
        load_op_libraries([copy])


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            "lensbox::warp(Tensor x) -> Tensor",
            r"needs the operator lensbox::warp\(Tensor x\) -> Tensor, which is not registered: load its"
            ".* is loaded; it has other operators: export the artifact again",
        ),
        (
            "lensbox::padded_nms(Tensor boxes, int mode) -> Tensor",
            r"mode\) -> Tensor, but the loaded library has lensbox::padded_nms\(",
        ),
        # torch's parser raises IndexError for this number.
        ("lensbox::giou(int[99999999999999999999] a) -> Tensor", "which torch cannot read"),
        # The loaded library may have more optional arguments.
        ("lensbox::masked_giou_loss(Tensor pred, Tensor target, Tensor? weight=None) -> Tensor", ""),
    ],
)
def test_requires_the_operators(artifact_path: Path, tmp_path: Path, schema: str, message: str) -> None:
    path = tmp_path / "changed.pt"
    change = with_metadata(lambda values: values.update(ops=[schema]))
    path.write_bytes(rewritten(artifact_path.read_bytes(), change))
    if not message:
        assert load_artifact(path).self_test().passed
        return
    with pytest.raises(ArtifactError, match=message):
        load_artifact(path)
