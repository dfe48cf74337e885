"""The verifiers of whole operations take the structs of `coregw.messages` as well as JSON."""

from __future__ import annotations

import base64
import json

import pytest

import coregw
from coregw import messages

CID, OTHER = coregw.payload_cid(b"hello"), coregw.payload_cid(b"other")
MAP = coregw.Map({"docs/readme": CID})


def link(cid: str) -> messages.Link:
    return messages.Link(cid=cid)


def result(target: str) -> messages.ResolveResult:
    step = messages.MapStep(
        from_=link(MAP.root),
        target=link(target),
        path="docs/readme",
        evidence_kind="tree",
        evidence_backend="sha2-256",
        proof=base64.b64encode(MAP.prove("docs/readme")).decode(),
    )
    prooflist = messages.Prooflist(root=link(MAP.root), query="docs/readme", steps=[step])
    return messages.ResolveResult(profile=REQUEST.profile, target=target, prooflist=prooflist)


REQUEST = messages.ResolveRequest(root=MAP.root, segments=["docs", "readme"])


def test_a_struct_is_verified_like_its_json() -> None:
    assert coregw.verify_resolve(REQUEST, result(CID)) == CID
    assert coregw.verify_resolve(messages.encode(REQUEST), result(CID)) == CID
    assert coregw.verify_resolve(REQUEST, messages.encode(result(CID)).decode()) == CID


def test_objects_and_buffers_of_json_are_verified_like_structs() -> None:
    request, answer = messages.encode(REQUEST), messages.encode(result(CID))
    sent, given = json.loads(request), json.loads(answer)
    assert coregw.verify_resolve(sent, given) == CID
    assert coregw.verify_resolve(memoryview(request), bytearray(answer)) == CID


def test_a_struct_with_a_wrong_target_is_refused() -> None:
    with pytest.raises(coregw.ProofError):
        coregw.verify_resolve(REQUEST, result(OTHER))


def test_an_array_in_place_of_an_object_is_refused() -> None:
    sent, answer = json.loads(messages.encode(REQUEST)), json.loads(messages.encode(result(CID)))
    prooflist = answer["prooflist"]
    step = prooflist["steps"][0]
    arrays = [
        (list(sent.values()), answer),
        (sent, list(answer.values())),
        (sent, answer | {"prooflist": list(prooflist.values())}),
        (sent, answer | {"prooflist": prooflist | {"root": list(prooflist["root"].values())}}),
        (sent, answer | {"prooflist": prooflist | {"steps": [step | {"target": list(step["target"].values())}]}}),
    ]
    assert coregw.verify_resolve(json.dumps(sent), json.dumps(answer)) == CID
    for request, other in arrays:
        with pytest.raises(coregw.InvalidInput if request is not sent else coregw.ProofError, match="an object"):
            coregw.verify_resolve(json.dumps(request), json.dumps(other))
