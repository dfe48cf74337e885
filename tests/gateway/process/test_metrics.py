"""Metrics and readiness: what a gateway counts, and when it is ready."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

import serving
from coregw.engine import Engine
from coregw.gateway.collectors import job_samples
from coregw.gateway.jobs import Jobs
from coregw.gateway.limits.machine import Limits
from coregw.gateway.management import serve_management
from coregw.gateway.metrics import FAMILIES, Kind, Sums, expose, number, spread
from coregw.gateway.settings import Settings
from coregw.messages.management import GarbageCollected, Progress, ProgressCallback
from coregw.store.memory import MemoryStore
from coregw.telemetry import Histogram
from processes import until

Metrics = dict[str, dict[tuple[tuple[str, str], ...], float]]


def parsed(text: str) -> Metrics:
    """Metrics by name and labels."""
    found: Metrics = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def scraped(data: Path) -> Metrics:
    with serving.control(data) as control:
        answer = control.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parsed(answer.text)


def requests(metrics: Metrics, method: str, route: str, status: int) -> float:
    labels = (("method", method), ("route", route), ("status", str(status)))
    return metrics.get("coregw_requests_total", {}).get(labels, 0)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[serving.Process]:
    with serving.process(tmp_path) as process:
        yield process


def test_metrics_are_sums_over_the_front_and_the_application(running: serving.Process, tmp_path: Path) -> None:
    arcs = {f"d{i}/f": "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq" for i in range(100)}
    root = httpx2.post(f"{running.url}/v1/roots", json={"arcs": arcs}).json()["root"]
    query = {"profile": "core.resolve/v0alpha1", "root": root, "segments": ["d1", "f"]}
    for _ in range(20):
        httpx2.post(f"{running.url}/v1/cas", content=bytes(1000))
        httpx2.post(f"{running.url}/v1/resolve", json=query)
        httpx2.get(f"{running.url}/v1/roots/x/diff/y")
        httpx2.get(f"{running.url}/nowhere/{id(query)}")
    expected = {
        ("POST", "/v1/roots", 201): 1,
        ("POST", "/v1/cas", 201): 20,
        ("POST", "/v1/resolve", 200): 20,
        ("GET", "/v1/roots/{first}/diff/{second}", 400): 20,
        ("GET", "none", 404): 20,
    }

    def counted() -> dict[tuple[str, str, int], float]:
        metrics = scraped(tmp_path)
        return {key: requests(metrics, *key) for key in expected}

    until(lambda: counted() == expected)  # a request is counted after its answer
    metrics = scraped(tmp_path)
    assert metrics["coregw_request_seconds_count"][("method", "POST"), ("route", "/v1/cas")] == 20
    assert metrics["coregw_refusals_total"] == {
        (("reason", "invalid_cid"),): 20,
        (("reason", "route_not_found"),): 20,
    }
    assert metrics["coregw_request_body_bytes_count"][()] == 41
    assert metrics["coregw_request_body_bytes_sum"][()] > 20_000
    assert metrics["coregw_pages_read_total"][()] >= 1
    assert metrics["coregw_page_cache_hits_total"][()] >= 1
    assert metrics["coregw_store_sync_seconds_count"][()] >= 1
    assert metrics["coregw_store_group_requests_sum"][()] >= 21
    assert metrics["coregw_store_keys"][(("family", "roots"),)] == 1
    assert metrics["coregw_ready"][()] == 1


def test_every_exported_metric_is_declared_with_its_labels(running: serving.Process, tmp_path: Path) -> None:
    httpx2.get(f"{running.url}/nowhere")
    with serving.control(tmp_path) as control:
        control.get("/healthz")
        text = control.get("/metrics").text
    for family in text_string_to_metric_families(text):
        name = family.name if family.name in FAMILIES else f"{family.name}_total"
        declared = FAMILIES[name]
        assert family.type == declared.kind
        assert family.documentation == declared.about
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(declared.labels)


def test_labels_are_never_taken_from_a_request(tmp_path: Path) -> None:
    with serving.process(tmp_path) as process:
        for path in ("/v1/cas/secret-path", "/v1/roots/secret-path/mutations", "/secret-path", "/ipfs/secret-path"):
            for method in ("GET", "POST", "BREW", "SECRET-METHOD", "OPTIONS"):
                httpx2.request(method, process.url + path)
        with serving.control(tmp_path) as control:
            assert "secret" not in control.get("/metrics").text.lower()


def test_what_connections_refuse_is_counted(tmp_path: Path) -> None:
    with serving.process(tmp_path, connections=2) as process:
        with serving.connect(process.url) as broken:
            broken.sendall(b"this is not HTTP\r\n\r\n")
            assert serving.everything(broken).startswith(b"HTTP/1.1 400 ")
        httpx2.get(f"{process.url}/healthz", headers={"host": "of.a.stranger.example"})
        with ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(serving.connect(process.url))
            until(lambda: scraped(tmp_path)["coregw_connections_closed_total"][(("reason", "no_room"),)] == 2)
            assert scraped(tmp_path)["coregw_connections"][()] == 2
        refusals = scraped(tmp_path)["coregw_refusals_total"]
    assert refusals == {(("reason", "malformed_http"),): 1, (("reason", "misdirected_request"),): 1}


def test_memory_of_bodies_is_measured(tmp_path: Path) -> None:
    with serving.process(tmp_path) as process, serving.connect(process.url) as slow:
        slow.sendall(b"POST /v1/roots HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + bytes(200_000))
        until(lambda: scraped(tmp_path)["coregw_buffered_bytes"][()] >= 200_000)
        assert scraped(tmp_path)["coregw_requests_in_progress"][()] == 1


def test_the_address_for_clients_has_no_metrics(tmp_path: Path) -> None:
    with serving.process(tmp_path) as process:
        assert httpx2.get(f"{process.url}/metrics").json()["error"] == "route_not_found"


def test_operations_of_maintenance_are_measured(tmp_path: Path) -> None:
    with serving.process(tmp_path), serving.control(tmp_path) as control:
        control.post("/admin/v1/maintenance/flush")
        metrics = scraped(tmp_path)
    labels = (("kind", "flush"), ("outcome", "succeeded"))
    assert metrics["coregw_jobs_ended_total"] == {labels: 1}
    assert 0 <= time.time() - metrics["coregw_job_end_timestamp_seconds"][labels] < 60
    assert "coregw_jobs" not in metrics


@pytest.mark.parametrize("dry_run", [True, False])
def test_jobs_in_progress_and_the_garbage_that_they_found(dry_run: bool) -> None:
    async def run() -> Metrics:
        jobs = Jobs()
        found = GarbageCollected(dry_run=dry_run, page_bytes_removed=5, payload_bytes_removed=7)
        await jobs.run("gc", lambda _: asyncio.sleep(0, found))

        async def operation(report: ProgressCallback) -> GarbageCollected:
            report(Progress(step="reading", done=1, total=4))
            await asyncio.sleep(60)
            return found

        jobs.stream({"type": "http"}, "check", operation)  # type: ignore[typeddict-item]
        await asyncio.sleep(0)
        sums = Sums()
        sums.add(job_samples(jobs))
        await jobs.close()
        return parsed(expose(sums).decode())

    metrics = asyncio.run(run())
    assert metrics["coregw_jobs"] == {(("kind", "check"),): 1}
    assert metrics["coregw_job_progress_ratio"] == {(("kind", "check"),): 0.25}
    garbage = {(("table", "pages"),): 5, (("table", "payloads"),): 7}
    nothing = dict.fromkeys(garbage, 0)
    assert metrics["coregw_garbage_bytes"] == (garbage if dry_run else nothing)
    assert metrics["coregw_garbage_removed_bytes"] == (nothing if dry_run else garbage)


# --- sums and exposition ----------------------------------------------------------------------------------------------


def test_values_are_in_the_bucket_of_their_number_of_bits() -> None:
    histogram = Histogram()
    for value in (0, 1, 63, 64, 65, 255, 256, 1 << 40):
        histogram.add(value)
    sums = Sums()
    sums.add([spread("coregw_request_body_bytes", histogram)])
    found = parsed(expose(sums).decode())
    buckets = {float(labels[0][1]): count for labels, count in found["coregw_request_body_bytes_bucket"].items()}
    assert (buckets[64], buckets[256], buckets[1024], buckets[float("inf")]) == (3, 6, 7, 8)
    assert found["coregw_request_body_bytes_sum"][()] == 704 + (1 << 40)


def test_sums_add_counters_gauges_and_histograms_of_the_same_labels() -> None:
    histogram = Histogram()
    histogram.add(100)
    sums = Sums()
    for _ in range(2):
        sums.add([number("coregw_connections", 3), number("coregw_refusals_total", 2, "too_large")])
        sums.add([number("coregw_refusals_total", 1, "internal"), spread("coregw_request_body_bytes", histogram)])
    found = parsed(expose(sums).decode())
    assert found["coregw_connections"] == {(): 6}
    assert found["coregw_refusals_total"] == {(("reason", "too_large"),): 4, (("reason", "internal"),): 2}
    assert found["coregw_request_body_bytes_count"] == {(): 2}


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"coregw_[a-z_]+", name)
        assert name.endswith("_total") == (family.kind is Kind.COUNTER)
        assert family.about.endswith(".")


# --- readiness --------------------------------------------------------------------------------------------------------


def test_readyz_says_why_a_gateway_is_not_ready(tmp_path: Path) -> None:
    with (
        serving.process(tmp_path, reserve_bytes=1 << 60) as process,
        serving.control(tmp_path) as control,
    ):
        assert httpx2.get(f"{process.url}/healthz").status_code == 200
        for answer in (httpx2.get(f"{process.url}/readyz"), control.get("/readyz")):
            assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
            (reason,) = answer.json()["details"]["reasons"]
            assert re.fullmatch(r"the disk of .* has [\d,]+ bytes free, less than the reserve of .*", reason)
        assert scraped(tmp_path)["coregw_ready"][()] == 0


def test_readyz_is_503_while_a_gateway_shuts_down(tmp_path: Path) -> None:
    with serving.process(tmp_path) as process, serving.control(tmp_path) as control:
        assert control.get("/readyz").json() == {"status": "ready"}
        with serving.connect(process.url) as busy:
            busy.sendall(b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhe")
            assert busy.recv(4096).startswith(b"HTTP/1.1 100 ")
            process.popen.send_signal(signal.SIGTERM)
            until(lambda: control.get("/readyz").status_code == 503)
            assert control.get("/readyz").json()["details"]["reasons"] == ["the gateway is shutting down"]
            busy.sendall(b"llo")
            assert serving.everything(busy).startswith(b"HTTP/1.1 201 ")


def test_a_store_that_does_not_respond_is_a_reason(tmp_path: Path) -> None:
    class Stuck(MemoryStore):
        async def obstacles(self) -> list[str]:
            await asyncio.sleep(60)
            return []

    async def run() -> list[str]:
        limits = replace(Limits.of(Settings()), store_seconds=0.01)
        async with serve_management(Settings(), limits, Engine(Stuck()), None, None, lambda: "starting") as management:
            return await management.gateway.obstacles()

    assert asyncio.run(run()) == ["starting", "the store does not respond"]
