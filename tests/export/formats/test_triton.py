"""Model repositories for Triton: files, configurations, detections and rejected models."""

import dataclasses
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from click.testing import CliRunner
from google.protobuf import json_format, text_format
from programs import run_python
from torch import Tensor
from tritonclient.grpc import model_config_pb2 as triton
from unusual_detectors import FittingItsOwnWay
from user_detectors import Landmarks, RedAndBlue

from lensbox.common.errors import ArtifactError
from lensbox.common.files import atomic_write
from lensbox.export.cli import export
from lensbox.export.formats import triton as triton_format
from lensbox.export.formats.triton import make_repository
from lensbox.export.formats.triton_config import LARGEST_BATCH
from lensbox.export.pipeline import make_artifact
from lensbox.export.plan import ExportOptions, Plan
from lensbox.export.verify.reference import comparison_canvases
from lensbox.model import Detector, FaceDetector, weights_sha256
from lensbox.model.protocol_check import named
from lensbox.ops import library_path
from lensbox.runtime import load_artifact
from lensbox.runtime.torchscript import quiet_torchscript, torchscript_call


def request(**inputs: Any) -> Any:
    return SimpleNamespace(inputs={name: np.asarray(values) for name, values in inputs.items()})


def backend_module() -> ModuleType:
    """Return a stand-in for `triton_python_backend_utils`."""
    module = ModuleType("triton_python_backend_utils")

    def tensor(name: str, values: Any) -> Any:
        return SimpleNamespace(name=name, values=values, as_numpy=lambda: values)

    def get_input_tensor_by_name(request: Any, name: str) -> Any:
        return tensor(name, request.inputs[name]) if name in request.inputs else None

    def error(message: str, code: str) -> Any:
        return SimpleNamespace(message=message, code=code)

    def response(output_tensors: Sequence[Any] = (), error: Any = None) -> Any:
        return SimpleNamespace(found={one.name: one.values for one in output_tensors}, error=error)

    vars(error).update(INVALID_ARG="invalid", INTERNAL="internal")
    vars(module).update(
        Tensor=tensor,
        TritonError=error,
        InferenceResponse=response,
        get_input_tensor_by_name=get_input_tensor_by_name,
    )
    return module


SCORE, OVERLAP = 0.25, 0.4


@pytest.fixture(scope="module")
def folder(detector: FaceDetector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository of the face detector."""
    return written(detector, tmp_path_factory.mktemp("triton"))


def plan(detector: Detector) -> Plan:
    return Plan(detector, ExportOptions(SCORE, OVERLAP))


def written(detector: Detector, folder: Path) -> Path:
    for path, content in make_repository(plan(detector), folder).items():
        atomic_write(path, content)
    return folder


def config_of(folder: Path, model: str) -> Any:
    text = (folder / model / "config.pbtxt").read_text(encoding="utf-8")
    return text_format.Parse(text, triton.ModelConfig())


def canvases_of(detector: Detector, count: int) -> Tensor:
    """Return uint8 [count, c, h, w]; the detector finds something on each canvas."""
    canvases = comparison_canvases(detector, (), 32)[0]
    with torch.no_grad():
        found = named(detector.detect(canvases, SCORE, OVERLAP))["counts"] > 0
    assert int(found.sum()) >= count
    return canvases[found][:count]


def assert_found(found: Mapping[str, Any], expected: Mapping[str, Tensor]) -> None:
    """Assert that outputs are equal up to rounding in all slots that hold a detection."""
    assert list(found) == list(expected)
    counts = expected["counts"].tolist()
    assert np.asarray(found["counts"]).ravel().tolist() == counts
    assert sum(counts) > 0
    for name, wanted in expected.items():
        if name == "counts":
            continue
        for index, count in enumerate(counts):
            actual = torch.as_tensor(np.asarray(found[name][index][:count]))
            torch.testing.assert_close(actual, wanted[index][:count], rtol=1e-3, atol=1e-3)


def test_writes_all_files(folder: Path) -> None:
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()) == [
        "README.md",
        "face_detector_onnx/1/model.onnx",
        "face_detector_onnx/config.pbtxt",
        "face_detector_python/1/detector.onnx",
        "face_detector_python/1/model.py",
        "face_detector_python/config.pbtxt",
        "face_detector_pytorch/1/model.pt",
        "face_detector_pytorch/config.pbtxt",
    ]


@pytest.mark.parametrize(
    ("model", "backend"),
    [
        ("face_detector_pytorch", "pytorch"),
        ("face_detector_onnx", "onnxruntime"),
        ("face_detector_python", "python"),
    ],
)
def test_configurations(folder: Path, model: str, backend: str) -> None:
    config = config_of(folder, model)
    assert (config.name, config.backend) == (model, backend)
    assert config.max_batch_size == LARGEST_BATCH == 32
    assert config.HasField("dynamic_batching")
    assert config.dynamic_batching.default_queue_policy.max_queue_size > 0
    assert [group.count for group in config.instance_group] == [1]
    inputs = {entry.name: (entry.data_type, [*entry.dims], entry.optional) for entry in config.input}
    assert inputs.pop("images") == (triton.TYPE_UINT8, [1, 256, 256], False)
    optional = (triton.TYPE_FP32, [1], True)
    thresholds = ("score_threshold", "iou_threshold") if backend == "python" else ()
    assert inputs == dict.fromkeys(thresholds, optional)
    assert [(entry.name, entry.data_type, [*entry.dims]) for entry in config.output] == [
        ("boxes", triton.TYPE_FP32, [256, 4]),
        ("scores", triton.TYPE_FP32, [256]),
        ("counts", triton.TYPE_INT32, [1]),
    ]
    # The model gives [batch], Triton [batch, 1].
    assert [entry.HasField("reshape") for entry in config.output] == [False, False, True]
    assert [warmup.batch_size for warmup in config.model_warmup] == [1, 2, 4, 8, 16, 32]


def test_artifact_answers_the_pytorch_backend(folder: Path, detector: FaceDetector) -> None:
    path = folder / "face_detector_pytorch" / "1" / "model.pt"
    with quiet_torchscript():
        module = torch.jit.load(path)
    # The backend matches inputs with the names of arguments, and outputs, by their order, with the tuple.
    assert [argument.name for argument in module.forward.schema.arguments[1:]] == ["images"]
    outputs = [entry.name for entry in config_of(folder, "face_detector_pytorch").output]
    canvases = canvases_of(detector, 5)
    with torchscript_call():
        found = dict(zip(outputs, module(canvases), strict=True))
    with torch.no_grad():
        assert_found(found, named(detector.detect(canvases, SCORE, OVERLAP)))
    artifact = load_artifact(path)
    assert artifact.self_test().passed
    assert artifact.metadata.weights_sha256 == weights_sha256(detector)
    assert artifact.metadata.score_threshold == SCORE


def test_artifact_needs_only_the_preloaded_op_library(folder: Path) -> None:
    """Load the model as README.md tells the operator of a server that has libtorch but not Lensbox."""
    code = (
        "import sys, warnings, torch\n"
        "warnings.simplefilter('ignore')\n"
        "found = torch.jit.load(sys.argv[1])(torch.zeros(2, 1, 256, 256, dtype=torch.uint8))\n"
        "assert 'lensbox' not in sys.modules\n"
        "print(len(found), list(found[2].shape))"
    )
    environment = {"LD_LIBRARY_PATH": str(Path(torch.__file__).parent / "lib")}
    command = ["-c", code, folder / "face_detector_pytorch" / "1" / "model.pt"]
    assert "Unknown builtin op" in run_python(*command, code=1, env=environment).stderr
    environment["LD_PRELOAD"] = str(library_path())
    assert run_python(*command, env=environment).stdout == "3 [2]\n"


def test_onnx_model_holds_its_thresholds(folder: Path, detector: FaceDetector) -> None:
    path = folder / "face_detector_onnx" / "1" / "model.onnx"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [value.name for value in session.get_inputs()] == ["images"]
    outputs = [entry.name for entry in config_of(folder, "face_detector_onnx").output]
    canvases = canvases_of(detector, 5)
    found = dict(zip(outputs, session.run(outputs, {"images": canvases.numpy()}), strict=True))
    with torch.no_grad():
        assert_found(found, named(detector.detect(canvases, SCORE, OVERLAP)))
    properties = {entry.key for entry in onnx.load(path).metadata_props}
    assert "weights_sha256" in properties
    assert not properties & {"lensbox.json", "lensbox.sha256"}


def python_model(folder: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the model of the Python backend, initialized as by Triton."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend_module())
    specification = importlib.util.spec_from_file_location("model", folder / model / "1" / "model.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    made = module.TritonPythonModel()
    config = json_format.MessageToDict(config_of(folder, model), preserving_proto_field_name=True)
    repository = str(folder / model)
    made.initialize(
        {"model_config": json.dumps(config), "model_repository": repository, "model_version": "1"}
    )
    return made


def test_python_model_takes_thresholds_of_requests(
    folder: Path, detector: FaceDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = python_model(folder, "face_detector_python", monkeypatch)
    canvases = canvases_of(detector, 6)
    low = {"score_threshold": [[0.1]] * 2, "iou_threshold": [[0.2]] * 2}
    bad = [
        ({"score_threshold": [[1.5]]}, "score_threshold must be one number between 0 and 1 .*, got 1.5"),
        ({"iou_threshold": [[np.nan]]}, "iou_threshold must be one number .*, got nan"),
        ({"iou_threshold": [[0.1], [0.2]]}, "got 0.1, 0.2"),
    ]
    images = canvases.numpy()
    requests = [request(images=images[:1]), request(images=images[1:3], **low), request(images=images[3:6])]
    requests += [
        request(images=images[: len(next(iter(thresholds.values())))], **thresholds) for thresholds, _ in bad
    ]
    answers = model.execute(requests)
    assert len(answers) == len(requests)
    parts = (canvases[:1], canvases[1:3], canvases[3:6])
    used = ((SCORE, OVERLAP), (0.1, 0.2), (SCORE, OVERLAP))
    for answer, part, thresholds in zip(answers, parts, used, strict=False):
        assert answer.error is None
        with torch.no_grad():
            assert_found(answer.found, named(detector.detect(part, *thresholds)))
    for answer, (_, message) in zip(answers[3:], bad, strict=True):
        assert answer.error.code == "invalid"
        with pytest.raises(ValueError, match=message):
            raise ValueError(answer.error.message)


def test_runtime_failure_answers_all_requests(
    folder: Path, detector: FaceDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = python_model(folder, "face_detector_python", monkeypatch)
    wrong = np.zeros([1, 1, 8, 8], np.uint8)
    answers = model.execute([request(images=wrong), request(images=wrong)])
    assert [answer.error.code for answer in answers] == ["internal", "internal"]


@pytest.mark.parametrize("make", [RedAndBlue, Landmarks])
def test_labels_and_extras(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = make()
    name = detector.specification.name
    written(detector, tmp_path)
    model = python_model(tmp_path, f"{name}_python", monkeypatch)
    canvases = canvases_of(detector, 4)
    expected = named(detector.detect(canvases, SCORE, OVERLAP))
    (answer,) = model.execute([request(images=canvases.numpy())])
    labels = ["labels"] if detector.specification.classes else []
    outputs = ["boxes", "scores", "counts", *labels, *detector.specification.extras]
    with torch.no_grad():
        assert_found(answer.found, {output: expected[output] for output in outputs})
    for backend in ("pytorch", "onnx", "python"):
        config = config_of(tmp_path, f"{name}_{backend}")
        assert [output.name for output in config.output] == outputs
    notes = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert all(f"output `{output}`" in notes for output in outputs)
    assert all(named_class in notes for named_class in detector.specification.classes)


def test_replaces_characters_that_folders_cannot_have(tmp_path: Path) -> None:
    detector = FittingItsOwnWay()
    detector.specification = dataclasses.replace(detector.specification, name="../cats & dogs")
    files = make_repository(plan(detector), tmp_path)
    assert tmp_path / "cats_dogs_pytorch" / "config.pbtxt" in files


def other_bias(content: bytes, load: Any = onnx.load_from_string) -> onnx.ModelProto:
    model: onnx.ModelProto = load(content)
    bias = next(value for value in model.graph.initializer if value.name.endswith("head4.prediction.bias"))
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + 0.1, bias.name))
    return model


def other_threshold(plan: Plan, kind: str, name: str, forward: str = "") -> Any:
    return make_artifact(plan, kind, name, forward=forward.replace(str(SCORE), "0.3"))


@pytest.mark.parametrize(
    ("model", "module", "function", "wrong"),
    [("onnx", onnx, "load_from_string", other_bias), ("pt", triton_format, "make_artifact", other_threshold)],
)
def test_rejects_models_with_other_detections(
    model: str,
    module: Any,
    function: str,
    wrong: Any,
    detector: FaceDetector,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, function, wrong)
    with pytest.raises(ArtifactError, match=rf"model\.{model} on cpu does not find what the detector finds"):
        make_repository(plan(detector), tmp_path)


def test_command_writes_a_repository_beside_an_artifact(tmp_path: Path) -> None:
    arguments = ["--model", "user_detectors:Brightest", "--output", str(tmp_path / "square.pt")]
    ran = CliRunner().invoke(export, [*arguments, "--format", "triton,torchscript"], catch_exceptions=False)
    assert ran.exit_code == 0
    paths = ran.stdout.splitlines()
    assert paths[0] == str(tmp_path / "square.pt")
    assert str(tmp_path / "square.triton" / "detector_onnx" / "config.pbtxt") in paths
    assert all(Path(path).is_file() for path in paths)
