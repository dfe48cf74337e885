"""The operations and examples of an OpenAPI document, as requests that can be sent.

As a program, ``python tests/helpers/documented.py`` sends the examples to a new gateway and records the responses and
the document. Review the difference and commit it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

import serving
from openapi_outline import outline

EXAMPLES = Path(__file__).parent.parent.parent / "python" / "coregw" / "gateway" / "examples.json"
PINNED = Path(__file__).parent.parent / "gateway" / "docs" / "openapi.txt"
PINNED_MANAGEMENT = PINNED.with_name("management.txt")

JSON_LINES = "application/x-ndjson"

VARYING = {"published_at", "frozen_at", "version", "root_hash", "checkpoint", "inclusion", "consistency"}
"""Members of responses whose values differ in every run: times, and hashes of them."""


@dataclass(frozen=True)
class Operation:
    """One method of one path, as the document describes it."""

    method: str
    path: str
    spec: dict[str, Any]

    @property
    def parameters(self) -> list[dict[str, Any]]:
        return list(self.spec.get("parameters", []))

    def send(self, client: httpx2.Client, name: str, token: str) -> httpx2.Response:
        """Send the request that the examples with this name describe."""
        given = {
            (each["in"], each["name"]): str(each["examples"][name]["value"])
            for each in self.parameters
            if name in each.get("examples", {})
        }
        path = self.path
        for (place, key), value in given.items():
            if place == "path":
                path = path.replace(f"{{{key}}}", quote(value, safe=""))
        headers = {key: value for (place, key), value in given.items() if place == "header"}
        if "security" in self.spec:
            headers["Authorization"] = f"Bearer {token}"
        if (self.spec["operationId"], name) == ("sign_record", "stable"):
            return client.post(path, json=_checkpoint(client, path, headers), headers=headers)
        content = None
        for media_type, body in self.spec.get("requestBody", {}).get("content", {}).items():
            if "Content-Type" in headers and name not in body.get("examples", {}):
                continue  # the first media type stands for requests without a body
            headers["Content-Type"] = media_type
            sent = body.get("examples", {}).get(name, {}).get("value")
            content = sent if sent is None or media_type != "application/json" else json.dumps(sent)
        query = {key: value for (place, key), value in given.items() if place == "query"}
        return client.request(self.method, path, params=query, headers=headers, content=content)

    def answers(self, name: str) -> list[tuple[int, str, Any]]:
        """Return status, media type and body of each response that has an example with this name."""
        return [
            (int(status), media_type, body["examples"][name]["value"])
            for status, answer in self.spec["responses"].items()
            for media_type, body in answer.get("content", {}).items()
            if name in body.get("examples", {})
        ]


def _checkpoint(client: httpx2.Client, path: str, headers: dict[str, str]) -> dict[str, str]:
    """Return the body that signs the log as it is: its root hash depends on the times of this run."""
    head = client.get(path.replace("/checkpoint", "/proof"), headers=headers).json()
    return {"checkpoint": f"example.org/docs/stable\n{head['size']}\n{head['root_hash']}\n\n{_SIGNATURE}"}


_SIGNATURE = f"— example.org/docs/stable {'A' * 88}AAA=\n"


def operations(document: dict[str, Any]) -> dict[str, Operation]:
    """Return all operations by their ids."""
    return {
        spec["operationId"]: Operation(method.upper(), path, spec)
        for path, item in document["paths"].items()
        for method, spec in item.items()
    }


def replay(client: httpx2.Client, document: dict[str, Any], token: str) -> Iterator[tuple[str, str, httpx2.Response]]:
    """Send every example in the order of the document. Yields operation, name and response."""
    known = operations(document)
    for operation, name in document["x-examples"]:
        yield operation, name, known[operation].send(client, name, token)


def settled(value: object) -> object:
    """Return a JSON value with the varying members blanked."""
    if isinstance(value, dict):
        return {name: "…" if name in VARYING else settled(each) for name, each in value.items()}
    return [settled(each) for each in value] if isinstance(value, list) else value


def _ask() -> tuple[dict[str, Any], dict[str, Any], list[httpx2.Response]]:
    """Return the documents of a new gateway and of its management, and its responses to the examples."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serving.process(Path(folder) / "data", serving.ADMIN) as gateway,
        httpx2.Client(base_url=gateway.url, timeout=60) as client,
    ):
        document = client.get("/openapi.json").json()
        with serving.control(Path(folder) / "data") as control:
            management = control.get("/openapi.json").json()
        return document, management, [answer for _, _, answer in replay(client, document, serving.ADMIN_TOKEN)]


def _body(answer: httpx2.Response) -> dict[str, object]:
    """Return the body of a response in the form of the examples file. CARs are omitted: JSON cannot contain them."""
    media_type = answer.headers.get("content-type", "").partition(";")[0]
    if not answer.content or media_type == "application/vnd.ipld.car":
        return {}
    return {"answer": answer.json()} if media_type == "application/json" else {"answer_text": answer.text}


def renew() -> None:
    """Record the responses of all examples, then the document."""
    examples = json.loads(EXAMPLES.read_text("utf-8"))
    for _ in range(2):  # the second document contains the responses of the first pass
        document, management, answers = _ask()
        assert len(answers) == len(examples), "an example names an unknown operation"
        for example, answer in zip(examples, answers, strict=True):
            recorded = {"status": answer.status_code} | _body(answer)
            if settled(recorded) != settled({name: example.get(name) for name in recorded}):
                for name in ("answer", "answer_text"):
                    example.pop(name, None)
                example.update(recorded)
        lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in examples)
        EXAMPLES.write_text(f"[\n{lines}\n]\n", "utf-8")
    PINNED.write_text(outline(document), "utf-8")
    PINNED_MANAGEMENT.write_text(outline(management), "utf-8")


if __name__ == "__main__":
    renew()
