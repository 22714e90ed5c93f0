"""The script of the export, as `make artifact` runs it."""

import runpy
import sys
from pathlib import Path

import pytest
from small_detectors import TINY, varied_detector

from lensbox.model import save_detector, weights_sha256
from lensbox.runtime import load_artifact

SCRIPT = Path(__file__).parents[2] / "export" / "script_model.py"


def test_exports_untrained_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    detector, weights = varied_detector(0.4, TINY), tmp_path / "w.safetensors"
    save_detector(detector, weights)
    monkeypatch.chdir(tmp_path)
    # As if Python had been started with the script.
    monkeypatch.setattr(sys, "path", [str(SCRIPT.parent), *sys.path])
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--weights", str(weights), "--score-threshold", "0.3"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    printed, said = capfd.readouterr()
    assert (ended.value.code, printed) == (0, f"{Path('artifacts', 'detector.pt')}\n")
    assert "Warning" not in said
    assert str(SCRIPT.parent) not in sys.path  # whose modules would hide others
    artifact = load_artifact(tmp_path / "artifacts" / "detector.pt")
    assert artifact.metadata.weights_sha256 == weights_sha256(detector)
    assert artifact.metadata.defaults.score_threshold == 0.3
    assert [file.name for file in (tmp_path / "artifacts").iterdir()] == ["detector.pt"]
