"""The texts of a model repository: `config.pbtxt` of each model for Triton, README.md for the operator."""

from collections.abc import Mapping, Sequence

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as triton

from lensbox.artifact.metadata import ArtifactMetadata
from lensbox.common.errors import ArtifactError
from lensbox.export.verify.reference import BATCHES

THRESHOLDS = ("score_threshold", "iou_threshold")
LARGEST_BATCH = max(BATCHES)  # what has been proven

_WARM_SIZES = (1, 2, 4, 8, 16, LARGEST_BATCH)
_WARM_CALLS = 2  # the first makes plans and loads kernels
_QUEUE_SIZE = 256  # requests
_QUEUE_TIMEOUT = 30_000_000  # microseconds; a client may ask for less
_DATATYPES = {
    "bool": triton.TYPE_BOOL,
    "uint8": triton.TYPE_UINT8,
    "int32": triton.TYPE_INT32,
    "int64": triton.TYPE_INT64,
    "float16": triton.TYPE_FP16,
    "float32": triton.TYPE_FP32,
    "float64": triton.TYPE_FP64,
}


_BACKENDS = {
    "pytorch": (
        "PyTorch",
        "the TorchScript artifact, `1/model.pt`: also a file for `lensbox info` and every runtime of Lensbox",
        "the [op library](#the-op-library)",
    ),
    "onnx": ("ONNX Runtime", "the detector in standard operators of ONNX", "nothing"),
    "python": (
        "Python, on CPUs",
        "the ONNX artifact, `1/detector.onnx`, at thresholds that a request may set",
        "numpy and onnxruntime in the Python of the backend",
    ),
}

_TEXT = """\
# {name}, for Triton Inference Server

Written by Lensbox {lensbox_version} with torch {torch_version}; weights {weights}.

| model | backend | what it is | needs |
| --- | --- | --- | --- |
{models}

All of them find what the detector finds, which was checked before they were written, in batches of up to
{batch}: the PyTorch model with torch's TorchScript, the others with onnxruntime, on a CPU. They were not
run in Triton's own backends for PyTorch and ONNX Runtime: ask a new server for a picture whose answer you
know.

## Start

Load the models for whose backend the server is equipped; without `--model-control-mode` it would load all
of them, and end where one fails.

```sh
tritonserver --model-repository=models --model-control-mode=explicit --load-model={first}
```
{op_library}
## Tensors

| tensor | datatype, shape of an image | |
| --- | --- | --- |
| input `images` | UINT8 {canvas} | {colors}: a canvas |
{thresholds}{outputs}

A batch comes before these shapes, {batch} at most; Triton makes batches of requests that wait.

A photograph is fitted to the canvas by its client: upright, scaled by the factor that makes it fit, in the
middle, padded with the gray level {fill}. In Python `artifact.preprocess` of the file does it as the
detector was trained to see it, and `artifact.restore` brings boxes back to pixels of the photograph.
{classes}
## Thresholds

The models find scores above {score}, and overlaps of {overlap} at most (IoU){own_thresholds}.
A client may always ask for more by leaving out what scores less: the best come first. For other thresholds
export the repository again, with `--score-threshold` and `--iou-threshold`.

## Settings

`config.pbtxt` of each model has one instance (`instance_group`){kinds}, batches of what waits
(`dynamic_batching`), at most 256 requests in the queue and 30 s in it, and calls before the model counts as
ready (`model_warmup`). An ONNX model takes all cores for one instance: set `intra_op_thread_count` among
its parameters (`threads` for the Python backend) where several share a machine.
"""

_OP_LIBRARY = """
### The op library

The PyTorch backend knows torch's operators only; those of the detector come from libraries that have to be
loaded first:

```sh
LD_LIBRARY_PATH=/opt/tritonserver/backends/pytorch LD_PRELOAD=/path/to/liblensbox_ops.so \\
  tritonserver --model-repository=models --model-control-mode=explicit --load-model={first}
```

Without it the model fails to load with `Unknown builtin op`. The operators are {ops}.

The library must be built for the libtorch that lies in the backend's folder, which is NVIDIA's build of
torch and not that of PyPI: build it from Lensbox's sources, with CMake, in NVIDIA's PyTorch container of
the same month. That torch should not be older than {torch_version}, which wrote `model.pt`: TorchScript
files are read by later versions.

The backend leaves TF32 on, torch's default on GPUs, where Lensbox computes in full float32:
`NVIDIA_TF32_OVERRIDE=0` in the server's environment turns it off.
"""


def config_text(config: triton.ModelConfig) -> bytes:
    """Return the content of `config.pbtxt`, which has been read back."""
    text: str = text_format.MessageToString(config)
    read = text_format.Parse(text, triton.ModelConfig())
    if read != config:
        raise ArtifactError(f"the config.pbtxt of {config.name} reads back as another one")
    return text.encode()


def model_config(
    name: str,
    backend: str,
    metadata: ArtifactMetadata,
    *,
    kind: int = triton.ModelInstanceGroup.KIND_AUTO,
    optional: Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
) -> triton.ModelConfig:
    """Return the configuration of a model of `detect`, as all backends have it.

    kind: where its instances run. optional: inputs float32 [1] that a request may leave out. parameters: of
    the backend, or of the model.
    """
    canvas = metadata.canvas
    shape = [canvas.channels, canvas.height, canvas.width]
    config = triton.ModelConfig(name=name, backend=backend, max_batch_size=LARGEST_BATCH)
    config.input.add(name="images", data_type=triton.TYPE_UINT8, dims=shape)
    for threshold in optional:
        config.input.add(name=threshold, data_type=triton.TYPE_FP32, dims=[1], optional=True)
    for output in metadata.outputs:
        _add_output(config, output, metadata)
    config.instance_group.add(count=1, kind=kind)
    # Requests that arrive while an instance is busy form its next batch; no request waits for a full batch.
    queue = config.dynamic_batching.default_queue_policy
    queue.max_queue_size = _QUEUE_SIZE
    queue.default_timeout_microseconds = _QUEUE_TIMEOUT
    queue.allow_timeout_override = True
    for size in _WARM_SIZES:
        warmup = config.model_warmup.add(name=f"batch of {size}", batch_size=size, count=_WARM_CALLS)
        warmup.inputs["images"].CopyFrom(
            triton.ModelWarmup.Input(data_type=triton.TYPE_UINT8, dims=shape, zero_data=True)
        )
    for key, value in (parameters or {}).items():
        config.parameters[key].string_value = value
    return config


def _add_output(config: triton.ModelConfig, name: str, metadata: ArtifactMetadata) -> None:
    described = metadata.output[name]
    # Without the batch; a size that varies is told by a letter.
    dims = [size if isinstance(size, int) else -1 for size in described["shape"][1:]]
    output = config.output.add(name=name, data_type=_DATATYPES[described["dtype"]], dims=dims or [1])
    if not dims:  # Triton wants a dimension beside the batch, which the model does not have
        output.reshape.SetInParent()


def notes(metadata: ArtifactMetadata, models: Sequence[str]) -> str:
    """Return the content of README.md. models: names, `NAME_BACKEND`, the PyTorch backend's first."""
    canvas = metadata.canvas
    per_request = [model for model in models if model.endswith("_python")]
    classes = ", ".join(f"{label} {name}" for label, name in enumerate(metadata.classes))
    return _TEXT.format(
        name=metadata.name,
        lensbox_version=metadata.lensbox_version,
        torch_version=metadata.torch_version,
        weights=metadata.weights_sha256[:12],
        models="\n".join(_model_row(model) for model in models),
        batch=LARGEST_BATCH,
        first=models[0],
        op_library=_op_library(metadata, models[0]),
        canvas=[canvas.channels, canvas.height, canvas.width],
        colors="RGB" if canvas.channels == 3 else "gray levels",
        fill=canvas.fill,
        thresholds="".join(
            f"| inputs `score_threshold`, `iou_threshold` of `{model}` | FP32 [1] | may be left out; "
            "the same for all images of a request |\n"
            for model in per_request
        ),
        outputs="\n".join(_output_row(name, metadata) for name in metadata.outputs),
        classes=f"\n`labels` are: {classes}.\n" if classes else "",
        score=metadata.score_threshold,
        overlap=metadata.iou_threshold,
        own_thresholds="".join(f"; requests to `{model}` may set others" for model in per_request),
        kinds=", on a GPU where there is one" + ", the Python one on a CPU" * bool(per_request),
    )


def _model_row(model: str) -> str:
    backend, what, needs = _BACKENDS[model.rsplit("_", 1)[1]]
    return f"| `{model}` | {backend} | {what} | {needs} |"


def _output_row(name: str, metadata: ArtifactMetadata) -> str:
    described = metadata.output[name]
    shape = "[" + ", ".join(map(str, described["shape"][1:] or [1])) + "]"
    meaning = {"counts": "how many of the slots hold a detection"}.get(name, described.get("unit", ""))
    return f"| output `{name}` | {described['dtype'].upper().replace('FLOAT', 'FP')} {shape} | {meaning} |"


def _op_library(metadata: ArtifactMetadata, model: str) -> str:
    if not metadata.ops:
        return ""
    ops = ", ".join(f"`{schema.split('(')[0]}`" for schema in metadata.ops)
    return _OP_LIBRARY.format(first=model, ops=ops, torch_version=metadata.torch_version)
