"""Op libraries that cannot be loaded. `tests/export/test_custom_op.py` loads one."""

import shutil
from pathlib import Path

import pytest

from lensbox.common.errors import ArtifactError
from lensbox.ops import library_path
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
