"""The script of the export, as its users run it."""

from pathlib import Path

from programs import run_python
from small_detectors import TINY, varied_detector

from lensbox.model import save_detector, weights_sha256
from lensbox.runtime import load_artifact

SCRIPT = Path(__file__).parents[2] / "export" / "script_model.py"


def test_exports_untrained_weights(tmp_path: Path) -> None:
    detector, weights = varied_detector(0.4, TINY), tmp_path / "w.safetensors"
    save_detector(detector, weights)
    arguments = ["--weights", str(weights), "--score-threshold", "0.3"]
    result = run_python(SCRIPT, *arguments, cwd=tmp_path)
    assert result.stdout == f"{Path('artifacts', 'detector.pt')}\n"
    assert "Warning" not in result.stderr
    artifact = load_artifact(tmp_path / "artifacts" / "detector.pt")
    assert artifact.metadata.weights_sha256 == weights_sha256(detector)
    assert artifact.metadata.defaults.score_threshold == 0.3
    assert [file.name for file in (tmp_path / "artifacts").iterdir()] == ["detector.pt"]
