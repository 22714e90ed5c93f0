"""Code that TorchScript cannot compile is reported with reason, file and line."""

import linecache
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from user_detectors import Brightest

from lensbox.common.errors import ArtifactError
from lensbox.export.pipeline import save_artifact

Found = tuple[Tensor, Tensor, Tensor]


class UsesNumpy(Brightest):
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Found:
        brightest = self.as_numbers(images)  # calls
        print(len(brightest))
        return super().detect(images, score_threshold, iou_threshold)

    def as_numbers(self, images: Tensor) -> Tensor:
        return torch.from_numpy(images.numpy())  # fails


class Mixed(Brightest):
    def __init__(self) -> None:
        super().__init__()
        self.table = {"a": 1, 2: "b"}

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Found:
        assert len(self.table) == 2  # fails
        batch = images.shape[0]
        return torch.zeros(batch, 1, 4), torch.zeros(batch, 1), torch.zeros(batch, dtype=torch.int32)


class Nested(Mixed):
    """A detector whose inner module, below, does not compile."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = InForward()


class InForward(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        chosen = [i for i in range(4) if i > 2]  # fails
        return x[chosen]


class Plain(Brightest):
    """A base whose `detect` compiles, after a `mistake`."""

    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Found:
        self.mistake(images)
        batch = images.shape[0]
        return torch.zeros(batch, 1, 4), torch.zeros(batch, 1), torch.zeros(batch, dtype=torch.int32)

    def mistake(self, images: Tensor) -> None:
        raise NotImplementedError


class NumpyFunction(Plain):
    def mistake(self, images: Tensor) -> None:
        print(images.shape)
        print(np.sqrt(2.0))  # fails


class NumpyAttribute(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.mean = np.zeros(3)

    def mistake(self, images: Tensor) -> None:
        print(images - self.mean[0])  # fails


class Functional(Plain):
    def mistake(self, images: Tensor) -> None:
        print(torch.vmap(torch.sum)(images.float()))  # fails


class Unannotated(Plain):
    def mistake(self, images: Tensor) -> None:
        print(self.scaled(images, 2))  # fails

    def scaled(self, images: Tensor, factor):  # type: ignore[no-untyped-def]
        return images * factor


class Format(Plain):
    def mistake(self, images: Tensor) -> None:
        print(f"{images.shape[0]:>4}")  # fails


class Closure(Plain):
    def mistake(self, images: Tensor) -> None:
        def twice(x: Tensor) -> Tensor:  # fails
            return x * 2

        print(twice(images))


class Lambda(Plain):
    def mistake(self, images: Tensor) -> None:
        twice = lambda x: x * 2  # noqa: E731  # fails
        print(twice(images))  # type: ignore[no-untyped-call]


class EmptyList(Plain):
    def mistake(self, images: Tensor) -> None:
        sides = []
        sides.append(images.shape[2])  # fails


class NoForm(Plain):
    def mistake(self, images: Tensor) -> None:
        print(sum([image.sum() for image in images]))  # fails


class Super(Brightest):
    def detect(self, images: Tensor, score_threshold: float, iou_threshold: float) -> Found:
        return super().detect(images, score_threshold, iou_threshold)  # fails


class Specification(Plain):
    def mistake(self, images: Tensor) -> None:
        print(self.specification.height)  # fails


class Arguments(Plain):
    def mistake(self, images: Tensor) -> None:
        self.show(images, images)

    def show(self, *images: Tensor) -> None:  # fails
        print(len(images))


def line_of(comment: str, after: str) -> str:
    """'file:line' of the first line with a comment after one that contains another text."""
    lines = linecache.getlines(__file__)
    start = next(number for number, line in enumerate(lines) if line.startswith(after))
    number = next(number for number in range(start, len(lines)) if lines[number].endswith(f"# {comment}\n"))
    return f"{__file__}:{number + 1}"


@pytest.mark.parametrize(
    ("kind", "reason", "advice"),
    [
        (UsesNumpy, "has no attribute or method 'numpy'", "numpy is not compiled: use torch's functions"),
        (Nested, "Comprehension ifs are not supported yet", ""),
        (Super, "no attribute or method 'detect'", "TorchScript has no super()"),
        (NumpyFunction, r"'numpy\.ufunc'", "numpy is not compiled: use torch's functions"),
        (NumpyAttribute, r"'numpy\.ndarray'", 'self.register_buffer("mean", torch.from_numpy(...))'),
        (Functional, "can't take variable number of arguments", "what this line calls is not compiled"),
        (Unannotated, "for argument 'factor'", "annotate the argument with its type, int"),
        (Format, "Don't support formatting", "an f-string may hold plain {values} alone"),
        (Closure, "function definitions aren't supported", "make it a method, or a function of the file"),
        (Lambda, "Lambda aren't supported", "make it a method, or a function of the file"),
        (
            Mixed,
            "Module 'Mixed' has no attribute 'table' .*Found str and int",
            "make table several attributes",
        ),
        (EmptyList, "Could not match type int to t", "sizes: list[int] = []"),
        (NoForm, "forms of aten::sum takes these arguments", ""),
        (Specification, "'specification'", "in __init__: self.height = self.specification.height"),
        (Arguments, "can't take variable number of arguments", "name all arguments"),
    ],
)
def test_usual_mistakes_get_reason_line_and_advice(
    kind: type[Brightest], reason: str, advice: str, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError) as caught:
        save_artifact(kind(), tmp_path / "a.pt", trace=False)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("the detector cannot be exported, as TorchScript cannot compile it: ")
    assert re.search(reason, lines[0])
    assert len(lines[0]) < 700
    assert lines[1].startswith(f"  {line_of('fails', f'class {kind.__name__}(')}: ")
    assert len(lines) <= 4
    assert advice in lines[-1]
    if kind is UsesNumpy:
        assert (
            lines[2]
            == f"  {line_of('calls', 'class UsesNumpy(')}: brightest = self.as_numbers(images)  # calls"
        )
    assert "<--- HERE" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [NumpyFunction, Nested, Super])
def test_a_second_attempt_says_the_same(kind: type[Plain], tmp_path: Path) -> None:
    """torch keeps the types of modules that it failed to compile: "Can't redefine method"."""
    messages = []
    for _ in range(2):
        with pytest.raises(ArtifactError) as caught:
            save_artifact(kind(), tmp_path / "a.pt", trace=False)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


class Parametrized(Brightest):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 1, 1))

    def detect(
        self, images: Tensor, score_threshold: float, iou_threshold: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        scores = self.layer(images.float() / 255).amax(dim=(2, 3)).sigmoid()
        boxes = torch.ones(images.shape[0], 1, 4)
        return boxes, scores, (scores[:, 0] > score_threshold).int()


def test_what_compiles_and_cannot_be_called(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        save_artifact(Parametrized(), tmp_path / "a.pt", trace=False)
    first, reason, advice = str(caught.value).splitlines()
    assert first == "the detector cannot be exported in float32:"
    assert "Parametrization is not working with scripting." in reason
    assert "torch.nn.utils.parametrize.remove_parametrizations(layer, " in advice
