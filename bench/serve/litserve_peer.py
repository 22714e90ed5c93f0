"""LitServe around the same artifact, as a program: the peer in `lensbox bench serve`.

usage: python -m lensbox.bench.serve.litserve_peer ARTIFACT DEVICE WORKERS BATCH PORT

POST /predict takes {"image": base64 of a file}; its workers decode it as the service does.
"""

import base64
import sys
from typing import Any

import litserve
import torch

from lensbox.common.machine import keep_freed_memory
from lensbox.runtime import load_artifact


class DetectApi(litserve.LitAPI):  # type: ignore[misc]
    """Decodes, detects and answers as POST /v1/detect does, without its checks."""

    def __init__(self, artifact_path: str, batch: int) -> None:
        super().__init__(max_batch_size=batch, batch_timeout=0.005 if batch > 1 else 0.0)
        self.artifact_path = artifact_path

    def setup(self, device: str) -> None:
        torch.set_num_threads(1)
        if torch.device(device).type == "cpu":
            keep_freed_memory()  # as the service does
        self.artifact = load_artifact(self.artifact_path, torch.device(device))
        for size in (1, self.max_batch_size):
            self.artifact.detect_images([torch.zeros([1, 512, 512], dtype=torch.uint8)] * size)

    def decode_request(self, request: dict[str, str], **_: Any) -> Any:
        return self.artifact.read_photo(base64.b64decode(request["image"]))

    def predict(self, photos: Any, **_: Any) -> Any:
        """Detect in a photograph, or in a list of them if batches are larger than 1."""
        in_batches = isinstance(photos, list)
        return self.artifact.detect_images(photos) if in_batches else self.artifact.detect_image(photos)

    def encode_response(self, output: Any, **_: Any) -> dict[str, Any]:
        answer: dict[str, Any] = output.to_json(self.artifact.classes)
        return answer


if __name__ == "__main__":
    path, accelerator, *numbers = sys.argv[1:]
    workers, batch, port = map(int, numbers)
    server = litserve.LitServer(
        DetectApi(path, batch),
        accelerator=accelerator,
        devices=1,
        workers_per_device=workers,
        fast_queue=True,
    )
    server.run(host="127.0.0.1", port=port, log_level="warning", generate_client_file=False)
