"""`config.pbtxt`, by which Triton knows a model's backend, tensors, batches and instances."""

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


def config_text(config: triton.ModelConfig) -> bytes:
    """The content of `config.pbtxt`, which has been read back."""
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
    """The configuration of a model of `detect`, as all backends have it.

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
    # What comes while an instance is busy makes its next batch; nobody waits for a batch to fill up.
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
