"""The two diffs of docs/ops_development.md: applied to the sources, they give an op with a derivative."""

import shutil
import sys
from pathlib import Path

import pytest
from page_blocks import read_blocks
from programs import REPOSITORY, path_with_build_tools, run

# In a new process, as this one has the op library.
CHECK = """
import torch
import lensbox.ops

area = torch.ops.lensbox.box_area
boxes = torch.tensor([[1.0, 2.0, 4.0, 8.0], [0.0, 0.0, 0.5, 0.25]], dtype=torch.float64, requires_grad=True)
assert area(boxes).tolist() == [18.0, 0.125]
area(boxes).sum().backward()
assert boxes.grad.tolist() == [[-6.0, -3.0, 6.0, 3.0], [-0.25, -0.5, 0.25, 0.5]]
assert torch.autograd.gradcheck(area, boxes)
torch.library.opcheck(area.default, (boxes,))
assert area(boxes.detach().to("meta")).shape == (2,)
"""


def apply(diff: str, root: Path) -> None:
    """Apply a diff of the page: lines to remove, and groups of lines that go below lines that are there."""
    files = diff.removeprefix("+++ ").split("\n+++ ")
    for name, *lines in (text.splitlines() for text in files):
        path = root / name
        source = path.read_text()
        place = 0  # where lines are added, behind the context
        context = before = ""
        for line in lines:
            mark, text = line[:1], f"{line[1:]}\n"
            if mark == "-":
                assert source.count(text) == 1, f"{name} has not once: {line}"
                source = source.replace(text, "")
            elif mark == " ":
                context = text if mark != before else context + text
                begin = 0 if source.startswith(context) else source.index(f"\n{context}") + 1
                place = begin + len(context)
            else:
                source = source[:place] + text + source[place:]
                place += len(text)
            before = mark
        path.write_text(source)


@pytest.mark.exhaustive
def test_page_gives_an_op_with_a_derivative(tmp_path: Path) -> None:
    root = tmp_path / "lensbox"
    root.mkdir()
    for name in ("CMakeLists.txt", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, root)
    shutil.copytree(REPOSITORY / "ops", root / "ops")
    for name in ("cmake", "core", "include"):  # of the image reader, which the same project builds
        shutil.copytree(REPOSITORY / "cpp_runtime" / name, root / "cpp_runtime" / name)
    diffs = [block.text for block in read_blocks("docs/ops_development.md") if block.language == "diff"]
    assert len(diffs) == 2
    for diff in diffs:
        apply(diff, root)
    path = {"PATH": path_with_build_tools()}
    options = [f"-DPython_EXECUTABLE={sys.executable}", "-DLENSBOX_CUDA=OFF", "-DCMAKE_BUILD_TYPE=None"]
    run("cmake", "-S", root, "-B", root / "build", "-G", "Ninja", *options, env=path)
    run("cmake", "--build", root / "build", env=path)
    library = root / "build" / "ops" / "liblensbox_ops.so"
    run(sys.executable, "-c", CHECK, env={"LENSBOX_OPS_LIBRARY": str(library)})
