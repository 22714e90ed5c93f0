"""GET /metrics, the dashboard that shows it, and the alerts that watch it."""

import json
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
import yaml
from prometheus_client import generate_latest, values
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from services import Start
from waiting import wait_until

from lensbox.serve.observability import metrics

_DEPLOY = Path(__file__).parents[3] / "deploy"
_DASHBOARD = _DEPLOY / "grafana" / "lensbox.json"
_ALERTS = _DEPLOY / "prometheus" / "alerts.yml"
_LOSS = {"predictions": [[0, 0, 1, 1]], "targets": [[0, 0, 1, 1]]}

_SUPERVISORS = [Metric("lensbox_model_loads", "", "counter")]
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def _samples(client: httpx.Client) -> Samples:
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    return _parsed(response.text)


def _parsed(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _value(samples: Samples, name: str, **labels: str) -> float:
    """Return the value of a sample with exactly these labels, the sum over models if they name none."""
    more = () if "model" in labels else ("model", "model_version")
    found = [
        value
        for (sample, named), value in samples.items()
        if sample == name and {key: text for key, text in named if key not in more} == labels
    ]
    assert found, (name, labels)
    return sum(found)


def test_requests_stages_and_batches_are_measured(start: Start, fake: Any, png: bytes) -> None:
    client = start().client
    for _ in range(3):
        assert client.post("/v1/detect", content=png).status_code == 200
    client.post("/v1/detect", content=b"no image")
    assert client.post("/v1/loss", json=_LOSS).status_code == 200
    for path in ("/v2/models/any/ready", "/v2/models/other/ready", "/a", "/b", "/c"):
        client.get(path)
    # Batches and requests are counted after their answers.
    wait_until(lambda: _value(_samples(client), "lensbox_batch_images_count") == 4)
    wait_until(lambda: _value(_samples(client), "lensbox_requests_total", route="none", status="404") == 3)
    samples = _samples(client)
    for route, status, count in (
        ("/v1/detect", "200", 3),
        ("/v1/detect", "400", 1),
        # Paths of clients do not become labels, because their number is unbounded.
        ("none", "404", 3),
        ("/v2/models/{name}/ready", "404", 2),
    ):
        assert _value(samples, "lensbox_requests_total", route=route, status=status) == count
    assert _value(samples, "lensbox_request_seconds_count", route="/v1/detect") == 4
    assert 0 < _value(samples, "lensbox_request_seconds_sum", route="/v1/detect") < 60
    for stage in ("decode", "queue", "inference"):
        assert _value(samples, "lensbox_stage_seconds_count", stage=stage) == 4
    assert _value(samples, "lensbox_batch_images_sum", model="fake") == 4
    assert _value(samples, "lensbox_batch_images_bucket", le="1.0") == 4


def test_readiness_versions_and_gpu_memory(start: Start, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = _samples(start().client)
    assert _value(samples, "lensbox_ready") == 1
    assert _value(samples, "process_resident_memory_bytes") > 1e6
    versions = {"version": version("lensbox"), "torch": version("torch")}
    assert _value(samples, "lensbox_build_info", **versions) == 1
    assert not [name for name, _ in samples if name == "lensbox_device_memory_bytes"]
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 200)
    fake.device = torch.device("cuda:1")
    client = start().client
    samples = _samples(client)
    assert _value(samples, "lensbox_device_memory_bytes", device="cuda:1", kind="allocated") == 100
    assert _value(samples, "lensbox_device_memory_bytes", device="cuda:1", kind="reserved") == 200
    response = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert response.text.endswith("# EOF\n")


def test_dashboard_and_alerts_use_existing_metrics_routes_and_labels(
    client: httpx.Client, png: bytes
) -> None:
    assert client.post("/v1/detect", content=png).status_code == 200
    wait_until(lambda: _value(_samples(client), "lensbox_stage_seconds_count", stage="inference") > 0)
    text = client.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    panels = json.loads(_DASHBOARD.read_text(encoding="utf-8"))["panels"]
    dashboard = [target["expr"] for panel in panels for target in panel["targets"]]
    (group,) = yaml.safe_load(_ALERTS.read_text(encoding="utf-8"))["groups"]
    for alert in group["rules"]:
        assert alert["labels"]["severity"] in ("critical", "warning")
        assert set(alert["annotations"]) == {"summary", "description"}
    endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
    families |= {one.name: one for one in _SUPERVISORS}
    names = {name + end for name, family in families.items() for end in endings.get(family.type, [])}
    routes = {sample.labels["route"] for sample in families["lensbox_requests"].samples}
    labels = {"le", "job", "instance", "device", "kind", "outcome"}  # labels of Prometheus; labels of GPUs
    labels |= {label for family in families.values() for sample in family.samples for label in sample.labels}
    for expression in [*dashboard, *(alert["expr"] for alert in group["rules"])]:
        # Not process_...: the processes of a service share none of these.
        used = set(re.findall(r"\blensbox_\w+", expression))
        assert used or "up{" in expression
        assert used <= names, expression
        assert set(re.findall(r"route=\"([^\"]*)\"", expression)) <= routes, expression
        grouped = re.findall(r"by \(([^)]*)\)", expression)
        by = {label.strip() for group in grouped for label in group.split(",")}
        assert by | set(re.findall(r"(\w+)(?:=~?|!=)\"", expression)) <= labels, expression
    own = {name for name in families if name.startswith("lensbox_") and not name.endswith("_created")}
    own -= {"lensbox_model_loads"}
    assert {name for name in own if not any(name in expression for expression in dashboard)} == set()


@pytest.fixture
def as_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let this process play each process of a service in turn. The environment names a foreign folder."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "missing"))
    monkeypatch.setattr(metrics, "_shared_folder", None)
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)


def test_processes_share_metrics_and_restarts_add_no_files(as_processes: None, tmp_path: Path) -> None:
    answered, slots = "lensbox_requests_total", ("frontend-0", "frontend-1")
    metrics.Metrics().request_answered("/v1/detect", 200, 0.02)  # a single process has no folder
    with metrics.shared_metrics("supervisor"):
        service = metrics.ServiceCounters()

        def scraped() -> Samples:
            return _parsed(generate_latest(front_end.exposed()).decode())

        files = set()
        for turn in range(1, 4):
            for slot in slots:
                metrics.join_shared_metrics(slot)
                front_end = metrics.Metrics()
                front_end.watch(lambda: (True, {"faces": (3, 2)}))
                front_end.request_answered("/v1/detect", 200, 0.02)
            # Counters continue after a restart.
            assert _value(scraped(), answered, route="/v1/detect", status="200") == 2 * turn
            assert (_value(scraped(), "lensbox_queue_jobs"), _value(scraped(), "lensbox_ready")) == (6, 1)
            assert [name for name, _ in scraped()].count("lensbox_build_info") == 1
            files.add(len(list(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]).iterdir())))
            for slot in slots:
                service.process_ended(slot)
        assert len(files) == 1
        assert _value(scraped(), "lensbox_restarts_total") == 6
        assert ("lensbox_queue_jobs", (("model", "faces"),)) not in scraped()  # of processes that have ended
        metrics.join_shared_metrics("supervisor")
        service.serve([("faces", "1")])
        service.serve([("faces", "2")])
        for number, serves in (("1", 0), ("2", 1)):
            assert _value(scraped(), "lensbox_model_info", model="faces", model_version=number) == serves
    assert list(tmp_path.iterdir()) == []
