"""GET /metrics, the dashboard that shows it, and the alerts that watch it."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import torch
import yaml
from prometheus_client.parser import text_string_to_metric_families

_DEPLOY = Path(__file__).parents[3] / "deploy"
_DASHBOARD = _DEPLOY / "grafana" / "lensbox.json"
_ALERTS = _DEPLOY / "prometheus" / "alerts.yml"
_LOSS = {"predictions": [[0, 0, 1, 1]], "targets": [[0, 0, 1, 1]]}

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def _samples(client: httpx.Client) -> Samples:
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def _value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def test_requests_are_counted_by_route_and_status(start: Callable[..., Any], fake: Any, png: bytes) -> None:
    client = start().client
    fake.metadata = SimpleNamespace(name="fake", canvas=None, classes=())
    for _ in range(3):
        client.post("/v1/detect", content=png)
    client.post("/v1/detect", content=b"no image")
    client.get("/v2/models/any/ready")
    client.get("/v2/models/other/ready")
    for path in ("/a", "/b", "/c"):
        client.get(path)
    samples = _samples(client)
    assert _value(samples, "lensbox_requests_total", route="/v1/detect", status="200") == 3
    assert _value(samples, "lensbox_requests_total", route="/v1/detect", status="400") == 1
    # The paths of clients do not become labels: there is no end of them.
    assert _value(samples, "lensbox_requests_total", route="none", status="404") == 3
    assert _value(samples, "lensbox_requests_total", route="/v2/models/{name}/ready", status="404") == 2
    assert _value(samples, "lensbox_request_seconds_count", route="/v1/detect") == 4
    assert 0 < _value(samples, "lensbox_request_seconds_sum", route="/v1/detect") < 60


def test_stages_and_batches_are_measured(
    start: Callable[..., Any], png: bytes, wait_until: Callable[..., None]
) -> None:
    client = start().client
    before = _samples(client)
    for stage in ("decode", "queue", "inference"):
        assert _value(before, "lensbox_stage_seconds_count", stage=stage) == 0
    for _ in range(3):
        assert client.post("/v1/detect", content=png).status_code == 200
    assert client.post("/v1/loss", json=_LOSS).status_code == 200
    # Measured after the answer is there.
    wait_until(lambda: _value(_samples(client), "lensbox_batch_images_count") == 4)
    samples = _samples(client)
    assert _value(samples, "lensbox_stage_seconds_count", stage="decode") == 3
    assert _value(samples, "lensbox_stage_seconds_count", stage="queue") == 4
    assert _value(samples, "lensbox_stage_seconds_count", stage="inference") == 4
    assert _value(samples, "lensbox_batch_images_sum") == 4
    assert _value(samples, "lensbox_batch_images_bucket", le="1.0") == 4


def test_letterbox_is_a_stage_of_its_own(client: httpx.Client, png: bytes) -> None:
    def stage(name: str, what: str) -> float:
        return _value(_samples(client), f"lensbox_stage_seconds_{what}", stage=name)

    before = {name: stage(name, "count") for name in ("letterbox", "inference")}
    seconds = stage("letterbox", "sum") + stage("inference", "sum")
    start = time.perf_counter()
    for _ in range(3):
        assert client.post("/v1/detect", content=png).status_code == 200
    assert client.post("/v1/loss", json=_LOSS).status_code == 200  # has no letterbox
    assert client.post("/v1/loss", json=_LOSS).status_code == 200  # measured after the answer is there
    taken = time.perf_counter() - start
    assert stage("letterbox", "count") == before["letterbox"] + 3
    assert stage("inference", "count") >= before["inference"] + 4
    assert stage("letterbox", "sum") > 0
    assert stage("letterbox", "sum") + stage("inference", "sum") - seconds < taken


def test_reports_queued_jobs(
    start: Callable[..., Any], fake: Any, wait_until: Callable[..., None], png: bytes
) -> None:
    running = start()
    fake.gate.clear()
    threads = []
    for count in (1, 2, 3):
        threads.append(threading.Thread(target=lambda: running.client.post("/v1/loss", json=_LOSS)))
        threads[-1].start()
        wait_until(lambda count=count: bool(fake.calls) and running.service.in_progress == count)
    wait_until(lambda: running.service.engine.waiting == 2)
    samples = _samples(running.client)
    assert _value(samples, "lensbox_queue_jobs") == 2
    assert _value(samples, "lensbox_requests_in_progress") == 3
    fake.gate.set()
    for thread in threads:
        thread.join(60)
    wait_until(lambda: _value(_samples(running.client), "lensbox_stage_seconds_count", stage="queue") == 3)
    assert _value(_samples(running.client), "lensbox_queue_jobs") == 0


def test_readiness_and_memory(
    start: Callable[..., Any], fake: Any, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    client = start().client
    samples = _samples(client)
    assert _value(samples, "lensbox_ready") == 1
    assert _value(samples, "process_resident_memory_bytes") > 1e6
    assert not [name for name, _ in samples if name == "lensbox_device_memory_bytes"]
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 200)
    fake.device = torch.device("cuda:1")
    samples = _samples(client)
    assert _value(samples, "lensbox_device_memory_bytes", device="cuda:1", kind="allocated") == 100
    assert _value(samples, "lensbox_device_memory_bytes", device="cuda:1", kind="reserved") == 200
    fake.error = fake.self_test_error = RuntimeError("a lost device")
    fake.device = torch.device("cpu")
    client.post("/v1/loss", json=_LOSS)
    assert _value(_samples(client), "lensbox_ready") == 0


def test_openmetrics_on_request(client: httpx.Client) -> None:
    response = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


def _expressions(panel: Any) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def _alerts() -> list[Any]:
    (group,) = yaml.safe_load(_ALERTS.read_text(encoding="utf-8"))["groups"]
    rules: list[Any] = group["rules"]
    return rules


def _existing(families: dict[str, Any]) -> set[str]:
    """The names that samples have, where there are any."""
    endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
    return {name + ending for name, family in families.items() for ending in endings.get(family.type, [])}


def _families(client: httpx.Client) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}


def test_dashboard_uses_existing_metrics(client: httpx.Client, png: bytes) -> None:
    client.post("/v1/detect", content=png)
    families = _families(client)
    exist = _existing(families)
    dashboard = json.loads(_DASHBOARD.read_text(encoding="utf-8"))
    assert len(dashboard["panels"]) >= 10
    used = set()
    for panel in dashboard["panels"]:
        for expression in _expressions(panel):
            names = re.findall(r"\b(?:lensbox|process)_\w+", expression)
            assert names, expression
            for name in names:
                assert name in exist, expression
                used.add(name)
    own = {name for name in families if name.startswith("lensbox_") and not name.endswith("_created")}
    assert {name for name in own if not any(use.startswith(name) for use in used)} == set()


def test_alerts_use_existing_metrics(client: httpx.Client, png: bytes) -> None:
    client.post("/v1/detect", content=png)
    exist = _existing(_families(client))
    alerts = _alerts()
    assert len({alert["alert"] for alert in alerts}) == len(alerts) >= 7
    for alert in alerts:
        assert alert["labels"]["severity"] in ("critical", "warning")
        assert set(alert["annotations"]) == {"summary", "description"}
        names = re.findall(r"\blensbox_\w+", alert["expr"])
        assert names or "up{" in alert["expr"]
        assert set(names) <= exist, alert["expr"]


def test_alerts_use_existing_routes(client: httpx.Client, png: bytes) -> None:
    client.post("/v1/detect", content=png)
    routes = {sample.labels["route"] for sample in _families(client)["lensbox_requests"].samples}
    for alert in _alerts():
        assert set(re.findall(r"route=\"([^\"]*)\"", alert["expr"])) <= routes, alert["expr"]


def test_the_dashboard_and_alerts_filter_and_group_by_labels_that_exist(
    client: httpx.Client, png: bytes
) -> None:
    client.post("/v1/detect", content=png)
    labels = {"le", "job", "instance", "device", "kind"}  # what Prometheus adds; what a CPU has none of
    for family in _families(client).values():
        labels |= {label for sample in family.samples for label in sample.labels}
    panels = json.loads(_DASHBOARD.read_text(encoding="utf-8"))["panels"]
    shown = [expression for panel in panels for expression in _expressions(panel)]
    for expression in [*shown, *(alert["expr"] for alert in _alerts())]:
        grouped = re.findall(r"by \(([^)]*)\)", expression)
        used = {label.strip() for group in grouped for label in group.split(",")}
        used |= set(re.findall(r"(\w+)(?:=~?|!=)\"", expression))
        assert used <= labels, expression


_PROCESS = """
import sys, time
from lensbox.serve.observability.metrics import Metrics, ServiceState, join_shared_metrics
join_shared_metrics(sys.argv[1])
metrics = Metrics()
metrics.request_answered("/v1/detect", 200, 0.02)
metrics.batch_computed(4, 0.5, [0.1, 0.2])
metrics.watch(lambda: ServiceState(True, 3, 2))
print("ready", flush=True)
sys.stdin.read()
"""
_SERVICE = """
import subprocess, sys
from pathlib import Path
from prometheus_client import generate_latest
from lensbox.serve.observability.metrics import (
    Metrics, Restarts, ServiceState, join_shared_metrics, shared_metrics
)
with shared_metrics() as _:
    import os
    folder = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])
    join_shared_metrics("supervisor")
    restarts, files = Restarts(), []
    metrics = Metrics()
    metrics.watch(lambda: ServiceState(True, 0, 1))
    for turn in range(3):
        children = []
        for slot in ("frontend-0", "frontend-1"):
            command = [sys.executable, "-c", sys.argv[1], slot]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            child.stdout.readline()
            children.append(child)
        print(generate_latest(metrics.exposed()).decode(), end="=====")
        files.append(len(list(folder.iterdir())))
        for slot, child in zip(("frontend-0", "frontend-1"), children):
            child.kill()
            child.wait()
            restarts.process_ended(slot)
    print(generate_latest(metrics.exposed()).decode(), end="=====")
    print(files)
"""


def _parsed(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_processes_share_metrics_and_restarts_add_no_files(tmp_path: Path) -> None:
    """Also with a variable that another program has set."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    command = [sys.executable, "-c", _SERVICE, _PROCESS]
    text = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    *scrapes, files = text.split("=====")
    first, _, third, last = map(_parsed, scrapes)
    assert _value(first, "lensbox_requests_total", route="/v1/detect", status="200") == 2
    assert _value(first, "lensbox_stage_seconds_count", stage="queue") == 4
    assert _value(first, "lensbox_batch_images_sum") == 8
    assert _value(first, "lensbox_queue_jobs") == 6
    assert _value(first, "lensbox_requests_in_progress") == 5
    assert _value(first, "lensbox_ready") == 1
    assert _value(first, "lensbox_restarts_total") == 0
    assert [name for name, _ in first].count("lensbox_build_info") == 1
    # Counters go on after a restart; the state of an ended process is gone.
    assert _value(third, "lensbox_requests_total", route="/v1/detect", status="200") == 6
    assert _value(third, "lensbox_queue_jobs") == 6
    assert _value(last, "lensbox_restarts_total") == 6
    assert _value(last, "lensbox_queue_jobs") == 0
    counts = json.loads(files)
    assert counts == [counts[0]] * 3
    assert list(tmp_path.iterdir()) == []


_ALONE = """
from lensbox.serve.observability.metrics import Metrics
metrics = Metrics()
metrics.request_answered("/v1/detect", 200, 0.02)
print([family.name for family in metrics.exposed().collect() if family.name == "lensbox_requests"])
"""


def test_one_process_ignores_an_inherited_folder(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "missing")}
    command = [sys.executable, "-c", _ALONE]
    text = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert text == "['lensbox_requests']\n"


def test_build_info(client: httpx.Client) -> None:
    (labels,) = [dict(labels) for name, labels in _samples(client) if name == "lensbox_build_info"]
    assert labels == {"version": version("lensbox"), "torch": version("torch")}
