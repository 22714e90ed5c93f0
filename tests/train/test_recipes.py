import os
import shutil
import sys
from pathlib import Path

import pytest
from programs import Ended, run

from lensbox.model import load_detector, read_metadata

RECIPES = Path(__file__).parents[2] / "train" / "recipes"
QUICK = (
    "model=small steps=1 batch_size=4 compile=false bf16=false recalibration_views=4 evaluations=0 workers=1"
)


def distilled(*arguments: object, code: int = 0, **environment: str) -> Ended:
    where = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "DEVICE": "cpu", "SET": QUICK}
    where |= dict.fromkeys(("TEACHER_SECONDS", "STUDENT_SECONDS", "REFINE_SECONDS"), "0")
    return run(RECIPES / "distilled.sh", *arguments, code=code, env=where | environment)


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("bash") is None, reason="the script needs bash")
def test_the_distilled_recipe_runs_and_goes_on_where_it_stopped(
    faces_folder: Path, faces_shard: Path, tmp_path: Path
) -> None:
    arguments, sources = (tmp_path, faces_folder, faces_shard), str(RECIPES / "shared_faces.json")
    distilled(*arguments, SOURCES=sources)
    assert read_metadata(tmp_path / "without_3" / "best.safetensors")["left_out"] == "3/4"
    metadata = read_metadata(tmp_path / "detector.safetensors")
    assert metadata["teachers"].count("best.safetensors") == 5
    assert metadata["initial_weights"] == "weights.safetensors"
    assert '"wider": 3.0' in metadata["recipe"]
    assert '"final_learning_rate": 1e-05' in metadata["recipe"]
    load_detector(tmp_path / "detector.safetensors")

    shutil.rmtree(tmp_path / "refined")
    again = distilled(*arguments, SOURCES=sources)
    assert [line for line in again.stdout.splitlines() if line.startswith("==")] == ["== refined"]


def test_without_data_it_says_how_to_use_it(tmp_path: Path) -> None:
    assert "distilled.sh OUTPUT VAL DATA..." in distilled(tmp_path, code=2).stderr
