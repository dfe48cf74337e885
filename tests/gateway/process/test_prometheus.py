"""Prometheus with the files of deploy/: on a gateway with the settings of deploy/compose.yml, and on made-up series."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

import serving
from coregw.client import Client
from processes import until
from servers import free_port
from static_trees import DEPLOY

RULES: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8"))["groups"][0][
    "rules"
]

FIRES: dict[str, list[tuple[str, str]]] = {
    "CoregwDown": [("up", "0x1000")],
    "CoregwNotReady": [("coregw_ready", "0x1000")],
    "CoregwInternalErrors": [('coregw_refusals_total{reason="internal",', "0+1x1000")],
    "CoregwWriteFailures": [("coregw_store_write_failures_total", "0x20 1x1000")],
    "CoregwBackgroundErrors": [("coregw_store_background_errors", "1x1000")],
    "CoregwDiskFullSoon": [("coregw_disk_free_bytes", "6e9x1000"), ("coregw_disk_reserve_bytes", "2e9x1000")],
    "CoregwRefusesUnderLoad": [('coregw_refusals_total{reason="unavailable",', "0+90x1000")],
    "CoregwConnectionsClosed": [("coregw_connections_closed_total", "0+90x1000")],
    "CoregwSlow": [
        ('coregw_request_seconds_bucket{route="/v1/resolve",le="1",', "0+1x1000"),
        ('coregw_request_seconds_bucket{route="/v1/resolve",le="4",', "0+9x1000"),
        ('coregw_request_seconds_bucket{route="/v1/resolve",le="+Inf",', "0+9x1000"),
    ],
    "CoregwSlowSyncs": [
        ('coregw_store_sync_seconds_bucket{le="0.5",', "0+1x1000"),
        ('coregw_store_sync_seconds_bucket{le="1",', "0+9x1000"),
        ('coregw_store_sync_seconds_bucket{le="+Inf",', "0+9x1000"),
    ],
    "CoregwWriteQueue": [("coregw_store_queue", "5000x1000")],
    "CoregwDamageFound": [("coregw_fsck_findings", "1x1000")],
    "CoregwMaintenanceFailed": [('coregw_jobs_ended_total{kind="gc",outcome="failed",', "0x20 1x1000")],
    "CoregwBackupOld": [
        ('coregw_job_end_timestamp_seconds{kind="backup",outcome="succeeded",', "-172800x1000"),
    ],
    "CoregwFileDescriptors": [("coregw_open_files", "900x1000"), ("coregw_max_open_files", "1000x1000")],
}
"""Series for which each alert fires at the 25th minute, one value a minute."""


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian's package prometheus has it)")
    return found


def test_each_alert_fires_for_its_series_and_for_no_others(tmp_path: Path) -> None:
    promtool = program("promtool")
    assert {*FIRES} == {rule["alert"] for rule in RULES}
    cases = []
    for name, series in FIRES.items():
        inputs = []
        for text, values in series:
            labels = 'instance="a",job="coregw"}'
            inputs.append({"series": f"{text}{labels}" if "{" in text else f"{text}{{{labels}", "values": values})
        checks: list[dict[str, Any]] = [
            {"expr": f'count(ALERTS{{alertname="{rule["alert"]}",alertstate="firing"}})', "eval_time": "25m"}
            | {"exp_samples": [{"labels": "{}", "value": 1}] if rule["alert"] == name else []}
            for rule in RULES
        ]
        cases.append({"interval": "1m", "input_series": inputs, "promql_expr_test": checks, "name": name})
    document = {"rule_files": [str(DEPLOY / "prometheus" / "alerts.yml")], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document), "utf-8")
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "tests.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def prometheus(top: Path, target: str) -> Iterator[httpx2.Client]:
    """Run Prometheus with the files of deploy/; only the target's address and the intervals differ."""
    command = [program("prometheus"), "--config.file", str(top / "config" / "prometheus.yml")]
    shutil.copytree(DEPLOY / "prometheus", top / "config")
    text = (DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8")
    assert text.count("gateway:9090") == 1
    assert text.count("interval: 15s") == 2
    text = text.replace("gateway:9090", target).replace("interval: 15s", "interval: 1s")
    (top / "config" / "prometheus.yml").write_text(text, "utf-8")
    address = f"127.0.0.1:{free_port()}"
    command += ["--storage.tsdb.path", str(top / "tsdb"), "--web.listen-address", address]
    with (top / "log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | {"HOME": str(top)}, stdout=log, stderr=log, cwd=top)
    try:
        with httpx2.Client(base_url=f"http://{address}") as client:
            until(lambda: is_ready(client))
            yield client
    finally:
        process.terminate()
        process.wait(60)


def is_ready(client: httpx2.Client) -> bool:
    try:
        return client.get("/-/ready").status_code == 200
    except httpx2.TransportError:
        return False


def told(client: httpx2.Client, path: str, **parameters: str) -> Any:  # noqa: ANN401 - the JSON of Prometheus
    answer = client.get(f"/api/v1/{path}", params=parameters)
    document = answer.json()
    assert document["status"] == "success", document
    return document["data"]


@pytest.mark.slow
def test_prometheus_scrapes_a_gateway_and_evaluates_everything(tmp_path: Path) -> None:
    program("prometheus")
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text("utf-8"))
    environ = {**compose["services"]["gateway"]["environment"], **serving.ADMIN}
    target = f"127.0.0.1:{free_port()}"
    with serving.process(tmp_path / "data", environ, management_address=target) as gateway:
        with Client(gateway.url) as client:
            client.create_root({"a": client.put_payload(b"a")})
        with prometheus(tmp_path, target) as asked:
            until(lambda: [each["health"] for each in told(asked, "targets")["activeTargets"]] == ["up"])
            until(lambda: all(each["health"] == "ok" for each in rules_of(asked)))
            assert [each["name"] for each in rules_of(asked)] == [rule["alert"] for rule in RULES]
            assert told(asked, "query", query="coregw_ready")["result"][0]["metric"]["job"] == "coregw"
            until(lambda: shown(asked, "coregw_requests_total") > 0)
            dashboard = json.loads((DEPLOY / "grafana" / "coregw.json").read_text("utf-8"))
            for panel in dashboard["panels"]:
                for each in panel.get("targets", []):
                    expression = each["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")
                    assert "$" not in expression, panel["title"]
                    told(asked, "query", query=expression)
            assert [each["name"] for each in rules_of(asked) if each["state"] == "firing"] == []
            assert gateway.end() == 0
            until(lambda: states(asked)["CoregwDown"] in ("pending", "firing"))


def rules_of(client: httpx2.Client) -> list[dict[str, Any]]:
    [group] = told(client, "rules")["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def states(client: httpx2.Client) -> dict[str, str]:
    return {each["name"]: each["state"] for each in rules_of(client)}


def shown(client: httpx2.Client, query: str) -> int:
    return len(told(client, "query", query=query)["result"])
