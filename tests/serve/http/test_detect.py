"""POST /v1/detect over a real artifact."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
import torch
from picture_files import encoded, png_file, squares
from services import Encode, Start, problem_of

from lensbox.common.canvas import Canvas
from lensbox.runtime import load_artifact
from lensbox.runtime.detect.artifact import Artifact
from lensbox.runtime.images.files import read_image
from lensbox.runtime.images.gpu_jpeg import CodedPhoto


def _expected(artifact: Artifact, file: bytes, **thresholds: Any) -> dict[str, Any]:
    photo = artifact.read_photo(file, full_size="tiles" in thresholds)
    found = artifact.detect_image(photo, **thresholds)
    height, width = read_image(file).shape[1:]
    return {
        "width": width,
        "height": height,
        "detections": [
            {"box": box, "score": score}
            for box, score in zip(found.boxes.tolist(), found.scores.tolist(), strict=True)
        ],
    }


@pytest.mark.parametrize(
    "thresholds",
    [{}, {"score_threshold": 0.01}, {"iou_threshold": 0.1}, {"score_threshold": 0, "iou_threshold": 1}],
)
def test_returns_the_detections_of_the_artifact(
    client: httpx.Client, artifact: Artifact, png: bytes, thresholds: dict[str, float]
) -> None:
    expected = _expected(artifact, png, **thresholds)
    assert (expected != _expected(artifact, png)) is bool(thresholds)
    assert client.post("/v1/detect", content=png, params=thresholds).json() == expected
    scores = [found["score"] for found in expected["detections"]]
    assert scores == sorted(scores, reverse=True)
    # Boxes are in pixels of this image (200 x 120), not of the canvas (256 x 256).
    boxes = np.array([found["box"] for found in expected["detections"]])
    assert len(boxes) > 1
    assert (boxes[:, 2:] <= (200, 120)).all()


def _part(head: str, content: bytes) -> dict[str, Any]:
    """Return a form with one part."""
    body = b"--b\r\n" + head.encode() + b"\r\n\r\n" + content + b"\r\n--b--\r\n"
    return {"content": body, "headers": {"Content-Type": 'Multipart/Form-Data; charset=utf-8; boundary="b"'}}


def _bodies(file: bytes) -> list[dict[str, Any]]:
    """Return the file in every form of a body."""
    named = 'content-disposition:form-data;name=image;filename="C:\\\\a;b.jpg"\r\nContent-Type: image/png'
    lines = b"\r\n".join(base64.b64encode(file)[n : n + 64] for n in range(0, len(file) * 4 // 3 + 4, 64))
    return [
        {"content": file},
        {"files": {"image": ("photo.jpg", file, "image/jpeg")}},
        {"files": {"file": file}},
        _part(named, file),
        _part(f"{named}\r\nContent-Transfer-Encoding: BASE64", lines),
        _part('Content-Disposition: form-data; name="image"', file),
        {"content": iter([file[:100], file[100:]])},
        *({"content": file, "headers": {"Content-Type": kind}} for kind in ("", "image/jpeg", "nonsense")),
    ]


def test_every_form_of_a_body_gives_the_same_answer(client: httpx.Client, png: bytes, encode: Encode) -> None:
    for file in (
        png,
        encode("JPEG"),
        png[: len(png) // 2],
        b"no image",
        png_file(50_000, 50_000, pixels=b""),
        b"II*\0 a TIFF",
    ):
        answers = [client.post("/v1/detect", **body) for body in _bodies(file)]
        assert len({(answer.status_code, answer.text) for answer in answers}) == 1
    form = _bodies(png)[1]
    assert (
        client.post("/v1/detect?score_threshold=0", **form).json()
        == client.post("/v1/detect?score_threshold=0", content=png).json()
        != client.post("/v1/detect", content=png).json()
    )


def test_returns_the_detections_of_tiles(client: httpx.Client, artifact: Artifact, png: bytes) -> None:
    expected = _expected(artifact, png, tiles="64,0.5")
    assert expected != _expected(artifact, png)
    assert client.post("/v1/detect?tiles=64,0.5", content=png).json() == expected
    assert client.post(f"/v1/detect?tiles={10**399}", content=png).status_code == 200
    refused = problem_of(client.post("/v1/detect?tiles=1", content=png))
    assert refused[:2] == (422, "invalid_parameter")
    assert "tiles must be at most 4096, got more of size 1" in refused.message


def test_engine_decodes_the_jpeg_files_that_its_gpu_takes(
    start_service: Start, client: httpx.Client, artifact_path: Path, encode: Encode, png: bytes
) -> None:
    jpeg, turned = encode("JPEG"), encode("JPEG", orientation=6)
    damaged = jpeg[:-300] + bytes(100) + jpeg[-200:]
    odd = jpeg[:600] + b"\xff\xc4" + jpeg[602:]
    files = [jpeg, turned, png, encode("JPEG", progressive=True), damaged, odd, jpeg[:-300]]
    taken: list[bytes] = []

    def decode(photos: Sequence[CodedPhoto], device: torch.device, canvas: Canvas) -> list[torch.Tensor]:
        """Decode as the GPU does, which refuses damaged files."""
        contents = [bytes(photo.file) for photo in photos]
        taken.extend(contents)
        nothing = torch.empty(0, dtype=torch.uint8)
        return [
            artifact.read_photo(file, orientation="stored").pixels if file in (jpeg, turned) else nothing
            for file in contents
        ]

    artifact = load_artifact(artifact_path)
    artifact.decodes_jpeg = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lensbox.serve.engine.jobs.decoded_pixels", decode)
        service = start_service(lambda: artifact).ready()

        def ask(of: httpx.Client) -> list[Any]:
            low = {"score_threshold": 0.01}
            return [of.post("/v1/detect", content=file, params=low).json() for file in files]

        answers = ask(service.client)
        assert set(taken) == {jpeg, turned, damaged}  # what the header of others shows is seen before
    expected = ask(client)
    assert len(expected[0]["detections"]) > 0
    for found, wanted in zip(answers, expected, strict=True):
        assert found.get("code") == wanted.get("code")
        boxes, wanted_boxes = ([one["box"] for one in each.get("detections", [])] for each in (found, wanted))
        np.testing.assert_allclose(np.array(boxes), np.array(wanted_boxes), atol=1e-3)


def test_photographs_are_turned_upright(client: httpx.Client, artifact: Artifact, encode: Encode) -> None:
    """The JPEG file is decoded at half its size."""
    for file in (encode("JPEG", size=(1199, 821), orientation=7), encode("PNG", orientation=6)):
        expected = _expected(artifact, file)
        assert client.post("/v1/detect", content=file).json() == expected
        assert client.post("/v1/detect?orientation=exif", content=file).json() == expected
        found = artifact.detect_image(artifact.read_photo(file, orientation="stored"))
        stored = client.post("/v1/detect?orientation=stored", content=file).json()
        assert (stored["width"], stored["height"]) == (expected["height"], expected["width"])
        assert [one["box"] for one in stored["detections"]] == found.boxes.tolist()


def test_the_body_size_limit_is_inclusive(client: httpx.Client, png: bytes, artifact: Artifact) -> None:
    # Decoders ignore what follows the end of a PNG file.
    response = client.post("/v1/detect", content=png + bytes((2 << 20) - len(png)))
    assert response.json() == _expected(artifact, png)


# --- labels and further outputs ---


_SQUARES = encoded(PIL.Image.fromarray(squares().permute(1, 2, 0).numpy()), "PNG")


def test_labels_and_further_outputs(own_detector: tuple[Artifact, httpx.Client]) -> None:
    artifact, client = own_detector
    query = "score_threshold=0.4&iou_threshold=0.1"
    found = client.post(f"/v1/detect?{query}", content=_SQUARES).json()["detections"]
    expected = artifact.detect_image(artifact.read_photo(_SQUARES), 0.4, 0.1)
    assert len(found) == len(expected.boxes) > 0
    if expected.labels is None:
        assert all(list(one) == ["box", "score", "extras"] for one in found)
        for name in ("corners", "embedding", "cell"):
            numbers = torch.tensor([one["extras"][name] for one in found])
            assert torch.equal(numbers, expected.extras[name])
    else:
        assert [list(one) for one in found] == [["box", "score", "label"]] * 2
        boxes = {one["label"]: one["box"] for one in found}
        assert boxes["red"] == pytest.approx([10, 20, 22, 32], abs=1)
        assert boxes["blue"] == pytest.approx([120, 60, 132, 72], abs=1)
