"""Fuzzing with schemathesis, driven by a service's own OpenAPI document: no 500, and only documented responses.

As a program (``python tests/helpers/fuzzing.py``, `make fuzz ARGS=http`) it runs longer and with a new seed each time;
arguments are passed to schemathesis. The gateway is filled with what the examples of its document refer to.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx2

import documented
import plant_services
import serving

HOOKS = Path(__file__).parent / "fuzzing_hooks.py"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)
"""Left out: that everything which matches its schema is accepted (schemas do not describe hashes and proofs), and that
everything else is rejected (an invalid result is a verdict of the verify routes, and a payload may be empty)."""


def schemathesis(document_url: str, token: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run schemathesis against a service, with a bearer token or without one."""
    options = {
        "checks": ",".join(each for each in CHECKS if token is not None or each != "ignored_auth"),
        "phases": "examples,coverage,fuzzing",
        "exclude-path-regex": "^/docs/",
        "generation-database": "none",
        "warnings": "off",
    }
    if token is not None:
        options["header"] = f"Authorization: Bearer {token}"
    flags = [f"--{name}={value}" for name, value in options.items()]
    program = Path(sys.executable).parent / "schemathesis"
    with tempfile.TemporaryDirectory() as folder:  # it writes files into its working directory
        return subprocess.run(
            [program, "--no-color", "run", document_url, "--continue-on-failure", *flags, *arguments],
            cwd=folder,
            env={**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS)},
            capture_output=True,
            text=True,
            check=False,
        )


def fill(url: str) -> None:
    """Fill a gateway with what the examples refer to."""
    with httpx2.Client(base_url=url, timeout=60) as client:
        answers = list(documented.replay(client, client.get("/openapi.json").json(), serving.ADMIN_TOKEN))
    assert all(answer.status_code < 500 for _, _, answer in answers)


def main(arguments: list[str]) -> int:
    """Fuzz the gateway and the plant store, each with and without its token. Returns 0 if nothing was found."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        with serving.process(data / "gateway", serving.ADMIN) as gateway:
            fill(gateway.url)
            codes = [_fuzz(gateway.url, token, arguments) for token in (serving.ADMIN_TOKEN, None)]
        with plant_services.running(data / "plants") as plants:
            codes += [_fuzz(plants.url, token, arguments) for token in (plant_services.TOKEN, None)]
    return max(codes)


def _fuzz(url: str, token: str | None, arguments: list[str]) -> int:
    """Run, print the findings, and return the exit code."""
    run = schemathesis(f"{url}/openapi.json", token, *(arguments or ["--max-time", "60"]))
    print(run.stdout, run.stderr, flush=True)
    return run.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
