"""``coregw mirror``: what it prints, and how it follows a published name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import Result

import serving
from coregw.client import Client
from gateways import guarded_gateway, honest_gateway

Run = Callable[..., Result]


def test_a_root_is_copied(run: Run, gateway: str, tmp_path: Path) -> None:
    with Client(gateway) as client:
        cids = client.put_payloads([b"payload %d" % i for i in range(5)])
        first = client.create_root({f"a/{i}": cid for i, cid in enumerate(cids)})
        second = client.update(first, {"b": cids[0]})
    with honest_gateway(tmp_path / "data") as destination:
        sides = ["--from", gateway, "--to", destination]
        done = run("mirror", first, *sides)
        assert (done.exit_code, done.stdout) == (0, f"{first}\n")
        assert done.stderr.startswith("coregw: copied 1 root, 5 arcs, 5 payloads, ")
        done = run("mirror", second, *sides)
        assert done.stdout == f"{second}\n"
        assert done.stderr.startswith("coregw: copied 1 root, 1 arc, 0 payloads, ")
        assert done.stderr.endswith(f" bytes, since {first}\n")
        done = run("mirror", second, "--base", first, *sides)
        assert done.stderr == "coregw: copied 0 roots, 0 arcs, 0 payloads, 0 bytes\n"
        absent = run("mirror", "docs/main", *sides)
        assert absent.exit_code == 1
        for wrong, message in (
            ([first, "--follow"], "need SCOPE/NAME"),
            ([first, "--token", "x"], "need SCOPE/NAME"),
            (["docs/main", "--base", first], "is for a root"),
        ):
            refused = run("mirror", *wrong, *sides)
            assert refused.exit_code == 2
            assert message in refused.stderr


def test_each_side_has_connection_options_of_its_own(
    run: Run, gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each side checks its header, which has the other's value if options are mixed up."""
    with Client(gateway) as client:
        first = client.create_root({f"a/{i}": client.put_payload(b"%d" % i) for i in range(5)})
        second = client.update(first, {"b": client.put_payload(b"b")})
    with ExitStack() as stack:
        destination = stack.enter_context(honest_gateway(tmp_path / "data"))
        a = stack.enter_context(guarded_gateway(gateway, "source"))
        b = stack.enter_context(guarded_gateway(destination, "destination"))
        sides = ["--from", a, "--to", b]
        monkeypatch.setenv("COREGW_HEADERS", "x-key: of --gateway")
        for given in ([], ["--from-header", "x-key: source"], ["--to-header", "x-key: destination"]):
            assert run("mirror", first, *sides, *given).exit_code != 0
        monkeypatch.setenv("COREGW_FROM_HEADERS", "x-key: source")
        done = run("mirror", first, *sides, "--to-header", "x-key: destination")  # reads pages of both sides
        assert (done.exit_code, done.stdout) == (0, f"{first}\n"), done.stderr
        (tmp_path / "headers").write_text("x-key: destination\n", "utf-8")
        done = run("mirror", second, *sides, "--to-header", f"@{tmp_path / 'headers'}")
        assert (done.exit_code, done.stdout) == (0, f"{second}\n"), done.stderr
        refused = run("mirror", first, *sides, "--to-ca-cert", tmp_path / "absent")
        assert refused.exit_code != 0
        assert "ca_cert: " in refused.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("sigint", [signal.SIG_DFL, signal.SIG_IGN], ids=["foreground", "background of a script"])
def test_a_name_is_followed_until_a_signal(tmp_path: Path, sigint: signal.Handlers) -> None:
    with ExitStack() as stack:
        a, b = (stack.enter_context(serving.thread(None, data=tmp_path / name, is_administered=True)) for name in "ab")
        environ = {"GATEWAY_ADMIN_TOKEN": "", "COREGW_FROM_TOKEN": serving.ADMIN_TOKEN}
        environ["COREGW_TO_TOKEN"] = serving.ADMIN_TOKEN
        client = stack.enter_context(Client(a))
        roots = [client.create_root({"a": client.put_payload(b"%d" % i)}) for i in range(3)]

        def publish(root: str) -> None:
            with serving.control(tmp_path / "a") as control:
                answer = control.post("/admin/v1/scopes/docs/roots", json={"name": "main", "root": root})
                assert answer.status_code == 200

        publish(roots[0])
        command = [sys.executable, "-P", "-m", "coregw", "mirror", "docs/main", "--from", a, "--to", b, "--follow"]
        process = stack.enter_context(
            subprocess.Popen(
                [*command, "--interval", "0.1"],
                env=os.environ | environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, sigint),  # noqa: PLW1509 - no threads use it
            )
        )
        stack.callback(process.kill)  # or a failure would wait for it
        assert process.stdout is not None
        for root in roots[1:]:
            assert process.stdout.readline()
            publish(root)
        assert process.stdout.readline() == f"{roots[2]}\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGTERM
        assert said.count("docs/main is at revision") >= 2
        with serving.control(tmp_path / "b") as control:
            record = control.get("/admin/v1/scopes/docs/roots/main").json()
        assert record["root"] in roots[1:]
