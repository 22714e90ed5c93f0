"""`lensbox bench detector` on a small detector: what is checked, what is timed, what is said."""

import csv
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_detectors import varied_detector
from torch import Tensor, nn

from lensbox.bench.check import WrongAnswerError
from lensbox.bench.cli import EXIT_WRONG
from lensbox.bench.detector import benchmark, operators, ways
from lensbox.bench.detector import detector_report as report
from lensbox.bench.detector.benchmark import Options
from lensbox.bench.detector.check import check_way
from lensbox.bench.detector.cost import Cost, network_cost
from lensbox.bench.detector.operators import Share, Split
from lensbox.bench.detector.results import Breakdown, DetectorReport, Timing
from lensbox.bench.detector.subject import Subject, make_subject
from lensbox.bench.detector.ways import Call, Way
from lensbox.bench.peers.peer import UnavailableError
from lensbox.bench.timing import Summary
from lensbox.common.errors import ExitCode
from lensbox.common.main import main
from lensbox.model import FaceDetector, save_detector


@pytest.fixture(scope="module")
def detector() -> FaceDetector:
    return varied_detector(spread=0.4)


@pytest.fixture(scope="module")
def subject(detector: FaceDetector, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return make_subject(detector, tmp_path_factory.mktemp("bench"), threads=1)


@pytest.fixture
def weights(detector: FaceDetector, tmp_path: Path) -> Path:
    save_detector(detector, tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    effort = replace(benchmark._QUICK, rounds=3, sample_seconds=1e-4)
    monkeypatch.setattr(benchmark, "_QUICK", effort)


@pytest.mark.usefixtures("short")
def test_a_quick_run_writes_tables(weights: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["bench", "detector", "--quick", "--weights", str(weights), "--output", str(out)]) == 0
    printed, errors = capfd.readouterr()
    for part in (
        "75,856",
        "TorchScript / onnxruntime, the same network",
        "convolution, depthwise",
        "reorders",
    ):
        assert part in printed
    assert errors == ""  # neither the exporter nor the profilers talk
    assert {path.name for path in out.iterdir()} == {"detector.csv", "detector.md", "detector_operators.csv"}
    with (out / "detector.csv").open(newline="") as file:
        timings = {row["way"]: row for row in csv.DictReader(file)}
    assert list(timings) == [way.name for way in ways.WAYS]
    for name in ("torch.compile network", "AOTInductor package detect"):
        assert timings.pop(name)["note"].startswith("not available: left out by --quick")
    for name in [name for name in timings if "OpenVINO" in name]:
        if importlib.util.find_spec("openvino") is None:
            assert "pip install 'lensbox[openvino]'" in timings.pop(name)["note"]
    assert all(float(row["p20_us"]) <= float(row["median_us"]) for row in timings.values())
    assert all(int(row["samples"]) == 3 and row["note"] == "" for row in timings.values())
    assert "| TorchScript detect, the artifact |" in (out / "detector.md").read_text()

    with (out / "detector_operators.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    counts = {(row["runtime"], row["kind"]): int(row["operators"]) for row in rows}
    kinds = (operators.IMAGE_CONVOLUTION, operators.DENSE, operators.DEPTHWISE, operators.POINTWISE)
    for kind in (*kinds, operators.RESIZE, operators.DECODING):
        assert counts["TorchScript", kind] == counts["onnxruntime", kind] > 0
    convolutions = sum(isinstance(layer, nn.Conv2d) for layer in varied_detector(0.4).modules())
    assert sum(counts["TorchScript", kind] for kind in kinds) == convolutions
    assert counts["TorchScript", operators.IMAGE_CONVOLUTION] == 1
    assert ("onnxruntime", operators.SELECTION) not in counts
    # Every operator is one that the benchmark knows.
    assert operators.OTHER not in {kind for _, kind in counts}


@pytest.mark.parametrize("way", [way for way in ways.WAYS if not way.slow_to_start], ids=lambda way: way.name)
def test_every_way_agrees_with_the_eager_detector(way: Way, subject: Subject) -> None:
    if "OpenVINO" in way.name:
        pytest.importorskip("openvino")
    check_way(way, way.load(subject), subject)


def test_the_picture_holds_faces(subject: Subject) -> None:
    thresholds = (subject.score_threshold, subject.iou_threshold)
    assert int(subject.detector.detect(subject.canvas, *thresholds)[2]) > 0


Spoil = Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        (ways.TORCHSCRIPT_DETECT, lambda a: (a[0] + 1, *a[1:]), "boxes differ by up to 1"),
        (ways.TORCHSCRIPT_DETECT, lambda a: (a[0], a[1] * float("nan"), a[2]), "scores differ by up to nan"),
        (ways.TORCHSCRIPT_DETECT, lambda a: (a[0], a[1], a[2] - 1), "faces are found"),
        (ways.ONNXRUNTIME_NETWORK, lambda a: (a[0], a[1] + 1), "logits differ by up to 1"),
    ],
)
def test_a_wrong_answer_is_caught(name: str, spoil: Spoil, message: str, subject: Subject) -> None:
    (way,) = [way for way in ways.WAYS if way.name == name]
    call = way.load(subject)
    with pytest.raises(WrongAnswerError, match=message):
        check_way(way, lambda: spoil(tuple(torch.as_tensor(value) for value in call())), subject)


def _without_a_package(_: Subject) -> Call:
    raise UnavailableError("the Python package 'onnxruntime' is not installed")


def _broken(_: Subject) -> Call:
    raise RuntimeError("no such method\nand a long trace")


@pytest.mark.usefixtures("short")
def test_a_defect_of_the_artifact_fails_the_run(
    weights: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_onnx(subject: Subject) -> Path:
        raise UnavailableError("the Python package 'onnx' is not installed")

    monkeypatch.setattr(benchmark, "exported_network", without_onnx)
    some = [Way(ways.TORCHSCRIPT_DETECT, "detect", _broken), Way(ways.YUNET, "yardstick", _without_a_package)]
    eager = [way for way in ways.WAYS if way.name == "eager detect"]
    monkeypatch.setattr(benchmark, "WAYS", [*some, *eager])
    assert main(["bench", "detector", "--quick", "--weights", str(weights)]) == EXIT_WRONG
    printed = capsys.readouterr().out
    assert "- TorchScript detect, the artifact: failed: RuntimeError: no such method\n" in printed
    assert "- onnxruntime YuNet-n, the yardstick: not available: the Python package" in printed
    assert "\neager detect " in printed
    assert "Note: where the time goes: the Python package 'onnx' is not installed" in printed
    assert "TorchScript detect / YuNet-n in onnxruntime 4 not measured" in " ".join(printed.split())
    assert "long trace" not in printed


def test_weights_that_do_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "detector", "--weights", str(tmp_path / "none.safetensors")]) == ExitCode.BAD_INPUT
    assert "lensbox bench detector: path must be a weights file" in capsys.readouterr().err


def test_threads_are_put_back_when_the_export_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def fails(*_: object) -> Subject:
        seen.append(torch.get_num_threads())
        raise RuntimeError("disk is full")

    monkeypatch.setattr(benchmark, "make_subject", fails)
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="disk is full"):
        benchmark.run(varied_detector(0.4), Options(threads=before + 1), print)
    assert seen == [before + 1]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("arguments", [["--device", "cuda"], ["--threads", "0"], ["--only", "nms"]])
def test_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "detector", *arguments]) == ExitCode.USAGE
    assert "Usage: lensbox bench" in capsys.readouterr().err


def test_a_cost_worked_out_by_hand() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Flatten(), nn.Linear(8 * 16, 10))
    cost = network_cost(network, torch.zeros(1, 3, 8, 8))
    assert cost == Cost(8 * 28 + 10 * 129, 16 * 8 * 27 + 128 * 10)


def summary(median: float) -> Summary:
    return Summary(median, median * 0.9, median * 1.1, 9)


def example_report(torchscript: float, mega_macs: float) -> DetectorReport:
    costs = {report.DETECTOR: Cost(200_000, round(mega_macs * 1e6)), report.YUNET_N: Cost(75_856, 87_000_000)}
    timings = [
        Timing(ways.TORCHSCRIPT_DETECT, "detect", summary(torchscript)),
        Timing(ways.TORCHSCRIPT_NETWORK, "network", summary(3000.0)),
        Timing(ways.ONNXRUNTIME_NETWORK, "network", summary(2000.0)),
        Timing(ways.YUNET, "yardstick", summary(1000.0)),
    ]
    return DetectorReport([("date", "today")], costs, 2, timings)


@pytest.mark.parametrize(
    ("torchscript", "mega_macs", "verdicts"),
    [(4000.0, 160.0, ["reached", "reached"]), (4010.0, 160.1, ["ABOVE", "ABOVE"])],
)
def test_figures_are_held_against_their_limits(
    torchscript: float, mega_macs: float, verdicts: list[str]
) -> None:
    _, lines = report.figure_table(example_report(torchscript, mega_macs))
    assert [line[-1] for line in lines[:2]] == verdicts
    assert lines[2] == ["TorchScript / onnxruntime, the same network", "1.50", "", ""]


def test_times_are_compared_with_the_artifact_and_the_yardstick() -> None:
    _, lines = report.timing_table(example_report(4000.0, 150.0))
    assert lines[2] == [ways.ONNXRUNTIME_NETWORK, "2,000 (1,800-2,200)", "0.500", "2.00"]


def test_the_breakdown_adds_up() -> None:
    breakdown = Breakdown(
        {operators.DENSE: Share(6, 1000.4), operators.BETWEEN: Share(0, 300.0)},
        {operators.DENSE: Share(6, 800.0), operators.RESIZE: Share(3, 20.0)},
        Share(37, 64.2),
    )
    _, lines = report.breakdown_table(breakdown)
    assert lines == [
        [operators.DENSE, "1,000 (6)", "800 (6)", "+200"],
        [operators.RESIZE, "", "20 (3)", "-20"],
        [operators.BETWEEN, "300", "", "+300"],
        ["sum", "1,300", "820", "+480"],
    ]
    whole = example_report(4000.0, 150.0)
    whole.breakdown = breakdown
    assert "Of TorchScript's convolutions, 64 µs are 37 reorders into oneDNN's layouts." in report.text(whole)
    assert "2 threads" in report.markdown(whole)


@pytest.mark.parametrize(
    ("image", "weight", "kind"),
    [
        ([1, 1, 256, 256], [16, 1, 3, 3], operators.IMAGE_CONVOLUTION),
        ([1, 32, 64, 64], [32, 32, 3, 3], operators.DENSE),
        ([1, 96, 16, 16], [96, 1, 5, 5], operators.DEPTHWISE),
        ((1, 32, 64, 64), (5, 32, 1, 1), operators.POINTWISE),
    ],
)
def test_kinds_of_convolutions(image: list[int], weight: list[int], kind: str) -> None:
    assert operators.convolution_kind(image, weight) == kind


@pytest.mark.parametrize(
    ("last_input", "kind"),
    [
        ([1, 32, 64, 64], operators.ELEMENTWISE),
        ([5440, 1], operators.DECODING),
        ([1, 5440, 4], operators.DECODING),
        ([1, 256, 4], operators.SELECTION),
    ],
)
def test_kinds_of_elementwise_operators(last_input: list[int], kind: str) -> None:
    assert operators.elementwise_kind(last_input, anchors=5440) == kind


def test_a_typical_call_has_the_median_of_each_kind() -> None:
    splits = []
    for microseconds in (5.0, 1.0, 2.0):
        split = Split()
        split.add(operators.RESIZE, microseconds)
        split.add(operators.RESIZE, 1.0)
        split.add(operators.BETWEEN, 7.0, operators=0)
        splits.append(split)
    assert dict(operators.typical(splits)) == {
        operators.RESIZE: Share(2, 3.0),
        operators.BETWEEN: Share(0, 7.0),
    }


def test_only_executed_reorders_are_counted() -> None:
    from lensbox.bench.detector.onednn_log import reorders_in

    log = "\n".join(
        [
            "onednn_verbose,v1,primitive,info,template:operation,engine,exec_time",
            "onednn_verbose,v1,primitive,create:cache_miss,cpu,reorder,jit:uni,undef,src:f32,,16x1x3x3,5.0",
            "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32 dst:f32,,16x1x3x3,0.25",
            "onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd,forward,src:f32,,mb1,0.5",
            "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32 dst:f32,,32x16x3x3,0.5",
            "something else",
        ]
    )
    assert reorders_in(log) == Share(2, 750.0)
