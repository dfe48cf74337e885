"""Who may do what: each principal with each action, and how long what a policy says of a token is used."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from coregw._core import Origins, Proxies
from coregw.engine import Engine
from coregw.errors import CoregwError
from coregw.gateway.access import (
    CONTROL,
    OPERATE,
    READ,
    WRITE,
    Access,
    AccessToken,
    Action,
    Principal,
    TokenPolicy,
    Verb,
    action_of,
)
from coregw.gateway.app import Application, Rules, create_app_over
from coregw.gateway.context import Gateway
from coregw.gateway.maintenance import Management
from coregw.gateway.management import create_management_app
from coregw.gateway.openapi import operations_of
from coregw.gateway.routes.publications import admin_router
from coregw.gateway.settings import Settings
from coregw.store.memory import MemoryStore
from tables import rows

if TYPE_CHECKING:
    from litestar.types import Scope

WRITER = AccessToken("GATEWAY_WRITE_TOKEN", "of-writers")
ADMIN = AccessToken("GATEWAY_ADMIN_TOKEN", "of-operators")
OF_SOCKET = AccessToken("control", "of-the-socket")
ACTIONS = {
    "read": READ,
    "write": WRITE,
    "publish": Action(Verb.PUBLISH, "docs"),
    "operate": OPERATE,
    "control": CONTROL,
}
PRINCIPALS = {
    "nobody": Principal.NOBODY,
    "stranger": Principal.STRANGER,
    "writer": Principal.WRITER,
    "administrator": Principal.ADMINISTRATOR,
    "both": Principal.WRITER | Principal.ADMINISTRATOR,
    "control": Principal.CONTROL,
}
POLICIES = {
    "open": TokenPolicy(),
    "tokens": TokenPolicy(False, WRITER, ADMIN),
    "admin": TokenPolicy(False, None, ADMIN),
    "read_only": TokenPolicy(True, WRITER, ADMIN),
    "private": TokenPolicy(control_token=OF_SOCKET),
}
MISSING, WRONG = "this route requires a bearer token", "the bearer token is wrong"
REFUSALS = {
    "-": None,
    "missing": ("unauthorized", MISSING),
    "wrong": ("unauthorized", WRONG),
    "read_only": ("read_only", "this gateway accepts no writes"),
    "socket": ("invalid_request", "this needs the control socket of the gateway"),
}

TABLE = """
policy     principal      read     write      publish    operate  control
open       nobody         -        -          missing    missing  missing
open       stranger       -        -          wrong      wrong    wrong
open       control        -        -          -          -        -
tokens     nobody         -        missing    missing    missing  missing
tokens     stranger       -        wrong      wrong      wrong    wrong
tokens     writer         -        -          wrong      wrong    wrong
tokens     administrator  -        wrong      -          -        socket
tokens     both           -        -          -          -        socket
tokens     control        -        -          -          -        -
admin      nobody         -        -          missing    missing  missing
admin      stranger       -        -          wrong      wrong    wrong
admin      administrator  -        -          -          -        socket
read_only  nobody         -        read_only  missing    missing  missing
read_only  stranger       -        read_only  wrong      wrong    wrong
read_only  writer         -        read_only  wrong      wrong    wrong
read_only  administrator  -        read_only  read_only  -        socket
read_only  both           -        read_only  read_only  -        socket
read_only  control        -        -          -          -        -
private    nobody         missing  missing    missing    missing  missing
private    stranger       wrong    wrong      wrong      wrong    wrong
private    control        -        -          -          -        -
"""


def told(refused: CoregwError | None) -> tuple[str, str] | None:
    """What a client is told of a refusal."""
    return None if refused is None else (refused.code, refused.message)


def test_each_principal_may_do_what_the_table_says() -> None:
    (_, _, *actions), *lines = [line.split() for line in TABLE.split("\n") if line]
    assert actions == [*ACTIONS]
    for policy, principal, *expected in lines:
        found = [told(POLICIES[policy].decide(PRINCIPALS[principal], action)) for action in ACTIONS.values()]
        assert found == [REFUSALS[each] for each in expected], (policy, principal)


@rows("name", [*POLICIES])
def test_what_nobody_may_do_everybody_may(name: str) -> None:
    """So credentials need not be looked at if they do not matter."""
    policy = POLICIES[name]
    for action in ACTIONS.values():
        if policy.decide(Principal.NOBODY, action) is None:
            assert [policy.decide(each, action) for each in PRINCIPALS.values()] == [None] * len(PRINCIPALS)


@pytest.mark.anyio
async def test_a_token_proves_every_principal_that_it_is_configured_for() -> None:
    policy = TokenPolicy(False, WRITER, ADMIN, OF_SOCKET)
    assert [await policy.identify(token) for token in (b"of-writers", b"of-operators", b"of-the-socket")] == [
        Principal.WRITER,
        Principal.ADMINISTRATOR,
        Principal.CONTROL,
    ]
    assert await TokenPolicy(False, ADMIN, ADMIN).identify(b"of-operators") == PRINCIPALS["both"]
    for wrong in (b"", b"of-writer", b"of-writers!", b"OF-WRITERS", b"of-writers\xe9"):
        assert await policy.identify(wrong) is Principal.STRANGER
    assert await TokenPolicy().identify(b"") is Principal.STRANGER
    assert [each.has_operators for each in POLICIES.values()] == [False, True, True, True, True]


def test_each_route_is_one_action() -> None:
    gateway = Gateway.over(Engine(MemoryStore()), Settings())
    by_action: dict[Action, set[str]] = {}
    for app in (create_app_over(gateway, ADMIN), create_management_app(Management(gateway), ADMIN)):
        for each in operations_of(app):
            found = by_action.setdefault(action_of(each.description, {"scope_name": "docs"}), set())
            found.add(f"{each.method} {each.path}")
    record = "/admin/v1/scopes/{scope}/roots"
    assert by_action[WRITE] == {
        "POST /v1/cas",
        "POST /v1/roots",
        "POST /v1/roots/{root}/mutations",
        "POST /v1/car",
    }
    assert by_action[ACTIONS["publish"]] == {
        f"POST {record}",
        f"POST {record}/{{name}}/freeze",
        f"POST {record}/{{name}}/checkpoint",
    }
    assert by_action[CONTROL] == {"POST /admin/v1/maintenance/backup"}
    assert {*by_action} == {*ACTIONS.values()}
    assert {each for each in by_action[OPERATE] if not each.partition(" ")[2].startswith("/admin/v1/")} == set()
    assert {each for each in by_action[READ] if " /admin" in each} == set()
    assert action_of(None, {}) == READ


# --- verdicts that are kept -------------------------------------------------------------------------------------------


class Slow:
    """A policy that is told who holds a token, and notes what it is asked."""

    has_operators = True

    def __init__(self) -> None:
        self.generation = 0
        self.holders: dict[bytes, Principal] = {}
        self.asked: list[bytes] = []
        self.answers: asyncio.Event | None = None

    async def identify(self, token: bytes) -> Principal:
        self.asked.append(hashlib.sha256(token).digest())
        found = self.holders.get(hashlib.sha256(token).digest(), Principal.STRANGER)
        if self.answers is not None:
            await self.answers.wait()
        return found

    def decide(self, principal: Principal, action: Action) -> CoregwError | None:
        return POLICIES["tokens"].decide(principal, action)

    def let(self, token: str, principal: Principal) -> None:
        self.holders[hashlib.sha256(token.encode()).digest()] = principal


def request(*authorization: str) -> Scope:
    """A request with these Authorization headers."""
    headers = [(b"host", b"localhost"), *((b"authorization", each.encode("latin-1")) for each in authorization)]
    scope: Any = {"type": "http", "headers": headers}
    return scope


@pytest.mark.anyio
async def test_a_verdict_is_used_for_its_lifetime() -> None:
    policy, now = Slow(), [1000.0]
    access = Access(policy, clock=lambda: now[0])
    policy.let("good", Principal.WRITER)
    for scheme in ("Bearer", "bearer", "BEARER "):
        assert await access.allows(request(f"{scheme} good"), WRITE)
    assert not await access.allows(request("Bearer bad"), WRITE)
    assert not await access.allows(request("Bearer bad"), WRITE)
    assert len(policy.asked) == 2
    policy.holders.clear()
    policy.let("bad", Principal.WRITER)
    now[0] += 59
    assert (await access.allows(request("Bearer good"), WRITE), len(policy.asked)) == (True, 2)
    now[0] += 1  # use does not prolong it
    assert (await access.allows(request("Bearer good"), WRITE), len(policy.asked)) == (False, 3)
    assert (await access.allows(request("Bearer bad"), WRITE), len(policy.asked)) == (True, 4)


@pytest.mark.anyio
async def test_a_new_generation_voids_every_verdict() -> None:
    policy = Slow()
    access = Access(policy, clock=lambda: 0.0)
    policy.let("good", Principal.WRITER)
    assert await access.allows(request("Bearer good"), WRITE)
    policy.holders.clear()
    assert await access.allows(request("Bearer good"), WRITE)
    policy.generation += 1
    assert not await access.allows(request("Bearer good"), WRITE)
    assert not await access.allows(request("Bearer good"), WRITE)
    assert len(policy.asked) == 2


@pytest.mark.anyio
async def test_a_verdict_of_an_earlier_generation_is_not_kept_when_it_comes_late() -> None:
    policy = Slow()
    access = Access(policy, clock=lambda: 0.0)
    policy.let("good", Principal.WRITER)
    policy.answers = asyncio.Event()
    early = asyncio.ensure_future(access.allows(request("Bearer good"), WRITE))
    while len(policy.asked) < 1:
        await asyncio.sleep(0)
    policy.holders.clear()
    policy.generation += 1
    other = asyncio.ensure_future(access.allows(request("Bearer other"), WRITE))
    while len(policy.asked) < 2:  # the verdicts are those of the new generation now
        await asyncio.sleep(0)
    policy.answers.set()
    await asyncio.gather(early, other)
    assert not await access.allows(request("Bearer good"), WRITE)
    assert not await access.allows(request("Bearer other"), WRITE)
    assert len(policy.asked) == 3


@pytest.mark.anyio
async def test_no_more_verdicts_are_kept_than_there_is_room_for() -> None:
    policy = Slow()
    access = Access(policy, clock=lambda: 0.0, capacity=3)
    policy.let("good", Principal.WRITER)
    for number in range(20):  # a token in use keeps its place, however many wrong ones are tried
        assert await access.allows(request("Bearer good"), WRITE)
        assert not await access.allows(request(f"Bearer wrong{number}"), WRITE)
    assert len(policy.asked) == 21
    for number in (19, 18, 17):
        await access.allows(request(f"Bearer wrong{number}"), WRITE)
    assert len(policy.asked) == 22


@pytest.mark.anyio
async def test_credentials_are_looked_at_only_if_they_matter() -> None:
    policy = Slow()
    access = Access(policy)
    policy.let("good", Principal.WRITER)
    for given in ((), ("Bearer good",), ("Bearer x", "Bearer y"), ("Basic good",)):
        assert await access.allows(request(*given), READ)
    assert told(await access.refusal(request(), WRITE)) == ("unauthorized", MISSING)
    for given in (("Bearer good", "Bearer good"), ("Basic good",), ("good",), ("Bearer\tgood",), ("",)):
        assert told(await access.refusal(request(*given), WRITE)) == ("unauthorized", WRONG)
        with pytest.raises(CoregwError, match=WRONG):
            await access.check(request(*given), WRITE)
    assert policy.asked == []


@pytest.mark.anyio
async def test_a_request_asks_the_policy_once_before_and_after_it_is_routed() -> None:
    """The application has one `Access`, whose verdicts both decisions use."""
    policy, settings = Slow(), Settings()
    origins = Origins(settings.hosts, settings.allow_origin, settings.host)
    engine = Engine(MemoryStore())
    app: Any = Application(Rules(origins, Proxies("none"), Access(policy)), [admin_router()])
    app.state["gateway"] = Gateway.over(engine, settings)
    policy.let("good", Principal.ADMINISTRATOR)
    transport = httpx2.ASGITransport(app)
    headers = {"authorization": "Bearer good"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        statuses = [(await client.get(f"/admin/v1/scopes/{scope}/roots")).status_code for scope in ("docs", "other")]
        statuses.append((await client.post("/admin/v1/scopes/docs/roots/none/freeze")).status_code)
    await engine.close()
    assert (statuses, len(policy.asked)) == ([200, 200, 404], 1)


def reachable(start: object) -> list[object]:
    """All that an object refers to, but for modules, classes and functions, which refer to everything."""
    found, stack = {id(start): start}, [start]
    while stack:
        for each in gc.get_referents(stack.pop()):
            if id(each) not in found and not isinstance(each, type | ModuleType | FunctionType):
                found[id(each)] = each
                stack.append(each)
    return [*found.values()]


@pytest.mark.anyio
async def test_no_token_of_a_request_is_kept() -> None:
    policy, secrets = Slow(), ["a-long-secret-of-a-writer", "a-long-secret-that-is-wrong"]
    access = Access(policy)
    policy.let(secrets[0], Principal.WRITER)
    for secret in secrets:
        await access.allows(request(f"Bearer {secret}"), WRITE)
    kept = [
        each if isinstance(each, bytes) else each.encode()
        for each in reachable(access)
        if isinstance(each, bytes | str)
    ]
    assert {hashlib.sha256(secret.encode()).digest() for secret in secrets} <= {*kept}
    assert [each for each in kept if any(secret.encode() in each for secret in secrets)] == []
