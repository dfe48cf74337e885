"""The scrub and the check on request: damage is found while a gateway runs, logged once, and counted in metrics."""

from __future__ import annotations

import http.client
import random
import time
from pathlib import Path

import serving
from coregw.cli.control import require_control

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


def test_damage_is_logged_once_and_counted(tmp_path: Path) -> None:
    with serving.process(tmp_path) as process:
        put(process.port, PAYLOAD)
    damage_payload(tmp_path)
    running = serving.start(tmp_path, scrub_bytes_per_second=1 << 30)
    try:
        deadline = time.monotonic() + 60
        with serving.control(tmp_path) as control:
            while 'check="scrub",kind="damaged_payloads"} 1' not in control.get("/metrics").text:
                assert time.monotonic() < deadline
                time.sleep(0.2)
    finally:
        assert running.end() == 0
    log = running.popen.communicate()[1]
    assert log.count("scrub: damaged payload ") == 1
    assert list(tmp_path.glob("fsck-*")) == []


def test_a_running_gateway_is_checked_on_request(tmp_path: Path) -> None:
    with serving.process(tmp_path) as process:
        put(process.port, PAYLOAD)
        with require_control(tmp_path) as control:
            found = control.run("fsck")
        checked = serving.run("fsck", "--data", tmp_path)
        put(process.port, b"more")
    assert (found["is_sound"], found["payloads"]) == (True, 1)
    assert (checked.returncode, checked.stdout.split(":")[0]) == (0, "sound")
