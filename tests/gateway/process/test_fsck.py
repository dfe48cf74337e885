"""`coregw fsck` beside a gateway: the gateway makes the check, and its metrics have what it found."""

from __future__ import annotations

import http.client
import random
from pathlib import Path

import pytest

import serving
from coregw.cli.control import require_control
from coregw.errors import InvalidInput

PAYLOAD = random.Random(1).randbytes(10_000)


def put(port: int, data: bytes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/cas", data)
    assert connection.getresponse().read()
    connection.close()


def damage_payload(data: Path) -> None:
    """Flip bits of the payload in the table that has it."""
    for table in (data / "rocksdb").glob("*.sst"):
        content = table.read_bytes()
        if PAYLOAD[:256] in content:
            table.write_bytes(content.replace(PAYLOAD[:256], bytes(256), 1))
            return
    raise AssertionError("no table has the payload")


def metrics(data: Path) -> str:
    with serving.control(data) as control:
        return control.get("/metrics").text


def test_damage_is_printed_and_counted_in_metrics(tmp_path: Path) -> None:
    with serving.process(tmp_path) as process:
        put(process.port, PAYLOAD)
    damage_payload(tmp_path)
    with serving.process(tmp_path):
        assert "coregw_fsck_findings{" not in metrics(tmp_path)
        checked = serving.run("fsck", "--data", tmp_path, "--rate", 1 << 30)
        assert (checked.returncode, checked.stdout.count("damaged payload ")) == (4, 1)
        assert checked.stdout.splitlines()[-1].startswith("damaged: ")
        text = metrics(tmp_path)
    assert 'coregw_fsck_findings{kind="damaged_payloads"} 1' in text
    assert 'coregw_jobs_ended_total{kind="fsck",outcome="succeeded"} 1' in text
    assert list(tmp_path.glob("fsck-*")) == []


def test_a_running_gateway_is_checked_on_request(tmp_path: Path) -> None:
    with serving.process(tmp_path) as process:
        put(process.port, PAYLOAD)
        checked = serving.run("fsck", "--data", tmp_path)
        put(process.port, b"more")
        text = metrics(tmp_path)
        with require_control(tmp_path) as control:
            found = control.run("fsck")
        with require_control(tmp_path) as control, pytest.raises(InvalidInput, match="`int` >= 1"):
            control.run("fsck", {"bytes_per_second": 0})
    assert (checked.returncode, checked.stdout.split(":")[0]) == (0, "sound")
    assert 'coregw_fsck_findings{kind="damaged_payloads"} 0' in text
    assert (found["is_sound"], found["payloads"]) == (True, 2)
