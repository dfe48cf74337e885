"""OpenTelemetry: spans of requests, as a collector receives them."""

from __future__ import annotations

import gzip
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import serving

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span


@contextmanager
def collector() -> Iterator[tuple[str, queue.Queue[bytes]]]:
    """A collector that keeps what it receives. Yields its address and the bodies."""
    received: queue.Queue[bytes] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.put(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def resources(received: queue.Queue[bytes]) -> list[ResourceSpans]:
    found: list[ResourceSpans] = []
    while not received.empty():
        request = ExportTraceServiceRequest()
        request.ParseFromString(gunzipped(received.get()))
        found += request.resource_spans
    return found


def gunzipped(body: bytes) -> bytes:
    return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body


def attributes(span: Span) -> dict[str, object]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def test_each_request_is_a_span_in_the_trace_of_its_client(tmp_path: Path) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with collector() as (url, received):
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
        with serving.process(tmp_path, environ) as process:
            headers = {"traceparent": f"00-{trace}-{parent}-01"}
            httpx2.get(f"{process.url}/v1/cas/a-secret-cid", headers=headers)
            httpx2.get(f"{process.url}/v1/roots/x/diff/y")
            httpx2.get(f"{process.url}/a-secret-path")
        raw = list(received.queue)
        found = resources(received)
    spans = {span.name: span for each in found for scope in each.scope_spans for span in scope.spans}
    assert set(spans) == {"GET /v1/cas/{cid}", "GET /v1/roots/{first}/diff/{second}", "GET"}
    payload = spans["GET /v1/cas/{cid}"]
    assert (payload.trace_id.hex(), payload.parent_span_id.hex()) == (trace, parent)
    assert attributes(payload) == {
        "http.request.method": "GET",
        "http.route": "/v1/cas/{cid}",
        "http.response.status_code": 400,
    }
    names = {each.key: each.value.string_value for each in found[0].resource.attributes}
    assert names["service.name"] == "coregw"
    assert not any(b"secret" in gunzipped(body) for body in raw)


def test_without_tracing_opentelemetry_is_not_loaded() -> None:
    code = "import sys, coregw.gateway.server; print('opentelemetry' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
