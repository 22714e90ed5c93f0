"""`examples/custom_op`: a user's op is built and exported; every program loads its library with --ops."""

import json
import shutil
import sys
from pathlib import Path

import httpx
import numpy as np
import PIL.Image
import programs
import pytest
import torch
from programs import built_runner, path_with_build_tools
from runner_answers import answer, refusal
from serve_process import ServeProcess

from lensbox.common.errors import ExitCode

# The library takes ten seconds to build. runtime/test_op_library.py, serve/test_loading.py and
# cpp_runtime/test_commands.py have libraries that cannot be loaded.
pytestmark = pytest.mark.exhaustive

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_op"
LIBRARY = "build/libexample_ops.so"
MISSING = "example::peaks(Tensor heat) -> Tensor, which is not registered: load its library with --ops FILE"


def run(*command: object, cwd: Path) -> programs.Ended:
    return programs.run(*command, cwd=cwd, env={"PATH": path_with_build_tools()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the example with its library, its artifact, a photograph of a blob and its label.

    export.log holds what the export said. It compared the file in C++, too.
    """
    folder = tmp_path_factory.mktemp("custom_op") / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("build", "*.pt", "__pycache__"))
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    options = ["--ops", LIBRARY, "--runner", built_runner(), "--output", "blobs.pt"]
    for command in (
        ("cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None", prefix),
        ("cmake", "--build", "build"),
        (sys.executable, "-m", "lensbox.cli", "export", "--model", "blobs:Blobs", *options),
    ):
        result = run(*command, cwd=folder)
    (folder / "export.log").write_text(result.stderr)
    image = np.zeros((96, 128), np.uint8)
    image[20:33, 40:53] = 250
    PIL.Image.fromarray(image).save(folder / "blob.png")
    labels = {
        "images": [{"id": 1, "file_name": "blob.png", "width": 128, "height": 96}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [40, 20, 13, 13]}],
        "categories": [{"id": 1, "name": "face"}],
    }
    (folder / "labels.json").write_text(json.dumps(labels))
    return folder


def test_export_compares_in_cpp(folder: Path) -> None:
    assert "C++ on cpu in batches of 1, 2, 7 and 32: " in (folder / "export.log").read_text()


# Run in a new process, as operators cannot be unregistered.
COMMANDS = """
import sys
from lensbox.common.errors import ArtifactError
from lensbox.cli.main import main
from lensbox.runtime import load_artifact

path, library, *commands = sys.argv[1:]
codes = [main(line.split()) for line in commands]
try:
    load_artifact(path)
except ArtifactError as error:
    print(error, file=sys.stderr)
codes += [main([*line.split(), "--ops", library]) for line in commands]
assert load_artifact(path, ops=[library]).self_test().passed
print(*map(int, codes))
"""


def test_commands_and_python_take_the_library(folder: Path) -> None:
    commands = (
        "detect --artifact blobs.pt --format jsonl blob.png",
        "evaluate --artifact blobs.pt --data labels.json",
        "bench blobs.pt --batch 1",
    )
    result = run(sys.executable, "-c", COMMANDS, "blobs.pt", LIBRARY, *commands, cwd=folder)
    assert result.stdout.splitlines()[-1] == "3 3 3 0 0 0", result.stderr
    assert result.stderr.count(MISSING) == len(commands) + 1
    (detection,) = json.loads(result.stdout.splitlines()[0])["detections"]
    assert [round(edge) for edge in detection["box"]] == [40, 20, 53, 33]


def test_every_engine_of_the_service_loads_the_library(folder: Path) -> None:
    options = ("--frontends", "1", "--device", "cpu,cpu")
    with ServeProcess(folder / "blobs.pt", *options, "--ops", str(folder / LIBRARY)) as process:
        image = (folder / "blob.png").read_bytes()
        answer = httpx.post(f"{process.ready()}/v1/detect", content=image).json()
    (detection,) = answer["detections"]
    assert [round(edge) for edge in detection["box"]] == [40, 20, 53, 33]
    with ServeProcess(folder / "blobs.pt", *options) as process:
        assert MISSING in process.refusal()


def test_the_runner_takes_the_library(folder: Path) -> None:
    artifact = ("--artifact", folder / "blobs.pt")
    found = answer("detect", *artifact, "--ops", folder / LIBRARY, "--image", folder / "blob.png")
    (detection,) = found["images"][0]["detections"]
    assert [round(edge) for edge in detection["box"]] == [40, 20, 53, 33]
    message = refusal(ExitCode.UNUSABLE, "selftest", *artifact)
    assert "example::peaks, which is not registered: load its library with --ops FILE" in message


@pytest.mark.parametrize(
    ("kind", "name"), [("program", "blobs.pt2"), ("onnx", "blobs.onnx"), ("aoti", "compiled.pt2")]
)
def test_the_other_formats_learn_the_shape_from_meta(folder: Path, kind: str, name: str) -> None:
    command = ("export", "--model", "blobs:Blobs", "--ops", LIBRARY, "--format", kind, "--output", name)
    run(sys.executable, "-m", "lensbox.cli", *command, cwd=folder)  # compares the file with the module
    operators = () if kind == "onnx" else ("--ops", LIBRARY)  # standard operators of ONNX alone
    command = ("detect", "--artifact", name, *operators, "--format", "jsonl", "blob.png")
    found = json.loads(run(sys.executable, "-m", "lensbox.cli", *command, cwd=folder).stdout)
    if kind == "program":
        found, *_ = answer(
            "detect", "--artifact", folder / name, "--ops", folder / LIBRARY, "--image", folder / "blob.png"
        )["images"]
    (detection,) = found["detections"]
    assert [round(edge) for edge in detection["box"]] == [40, 20, 53, 33]


# In a new process, which loads the library. Small whole numbers have many equal neighbours.
TRANSLATED = """
import sys
import onnxruntime
import torch
from blobs import Blobs

torch.ops.load_library(sys.argv[1])

class Peaks(torch.nn.Module):
    def forward(self, heat):
        return torch.ops.example.peaks(heat)

heat = torch.randint(-1, 4, (3, 9, 11), generator=torch.Generator().manual_seed(0)).float()
table = Blobs().onnx_translations()
model = torch.onnx.export(Peaks(), (heat,), dynamo=True, custom_translation_table=table, verbose=False)
session = onnxruntime.InferenceSession(model.model_proto.SerializeToString())
(found,) = session.run(None, {session.get_inputs()[0].name: heat.numpy()})
expected = Peaks()(heat)
assert 3 < (expected != 0).sum() < 150
assert (torch.from_numpy(found) == expected).all()
"""


def test_onnx_translation_keeps_the_first_of_equal_neighbours(folder: Path) -> None:
    run(sys.executable, "-c", TRANSLATED, LIBRARY, cwd=folder)
