"""Waiting for calls that a cancellation must not reach, and the cores for threads."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
from concurrent.futures import CancelledError
from contextvars import ContextVar
from typing import Any

import pytest

from coregw.concurrency import EventLoopThread, finish, result_of, usable_cores

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def _fail(event: asyncio.Event) -> None:
    await event.wait()
    raise ValueError("as it should")


async def test_a_call_that_fails_after_nobody_waits_for_it_is_not_logged() -> None:
    logged: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: logged.append(context))
    event = asyncio.Event()
    call = asyncio.ensure_future(_fail(event))
    waiting = [asyncio.ensure_future(result_of(call)) for _ in range(2)]
    await asyncio.sleep(0)
    for each in waiting:
        each.cancel()
    assert all(
        isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*waiting, return_exceptions=True)
    )
    assert not call.done()
    event.set()
    await asyncio.wait([call])
    await asyncio.sleep(0)
    del call, waiting
    gc.collect()
    assert not logged


async def test_the_result_or_the_exception_reaches_all_who_wait() -> None:
    call = asyncio.ensure_future(asyncio.sleep(0.01, 7))
    assert await asyncio.gather(result_of(call), result_of(call)) == [7, 7]
    event = asyncio.Event()
    event.set()
    failing = asyncio.ensure_future(_fail(event))
    for _ in range(2):
        with pytest.raises(ValueError, match="as it should"):
            await result_of(failing)
    failing = asyncio.ensure_future(asyncio.sleep(10))
    failing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await result_of(failing)


async def test_a_call_keeps_nothing_of_those_who_no_longer_wait() -> None:
    class Request:
        pass

    async def wait(call: asyncio.Future[None], request: Request) -> None:
        variable.set(request)  # what is called when the call ends has a copy of this context
        await result_of(call)

    variable: ContextVar[Request] = ContextVar("variable")
    call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    alive = []
    for _ in range(5):
        request = Request()
        alive.append(weakref.ref(request))
        waiting = asyncio.ensure_future(wait(call, request))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        del request, waiting
    await asyncio.sleep(0)
    gc.collect()
    assert [each() for each in alive] == [None] * 5
    call.cancel()


async def test_what_a_failed_call_used_is_freed_without_the_collector() -> None:
    class Used:
        pass

    async def call(used: Used) -> None:
        await asyncio.sleep(0)
        assert used is None, "fails"

    gc.disable()
    try:
        used = Used()
        alive = weakref.ref(used)
        with pytest.raises(AssertionError):
            await result_of(asyncio.ensure_future(call(used)))
        del used
        await asyncio.sleep(0)
        assert alive() is None
    finally:
        gc.enable()


async def test_a_call_has_ended_when_a_task_that_is_cancelled_twice_raises() -> None:
    event = asyncio.Event()
    stops = []
    call = asyncio.ensure_future(_fail(event))
    waiting = asyncio.ensure_future(finish(call, lambda: stops.append(call.done())))
    for _ in range(2):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    event.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert call.done()
    assert stops == [False]


def test_an_event_loop_thread_returns_raises_and_cancels() -> None:
    cancelled = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(threading.current_thread().name)
            raise

    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(endless())
        await asyncio.sleep(0)
        return task

    async def fail() -> None:
        raise ValueError("as it should")

    with EventLoopThread() as thread:
        assert thread.call(asyncio.sleep(0, 7)) == 7
        with pytest.raises(ValueError, match="as it should"):
            thread.call(fail())
        task = thread.call(begin())
        assert task.get_loop() is thread.loop
    thread.close()
    assert cancelled == ["coregw-loop"]
    assert task.cancelled()
    assert thread.loop.is_closed()


@pytest.mark.filterwarnings("error")
def test_a_call_beside_the_end_of_an_event_loop_thread_ends() -> None:
    for _ in range(20):
        thread, ends = EventLoopThread(), list[type[BaseException]]()

        def call(thread: EventLoopThread = thread, ends: list[type[BaseException]] = ends) -> None:
            try:
                while True:
                    thread.call(asyncio.sleep(0))
            except (RuntimeError, CancelledError) as error:
                ends.append(type(error))

        caller = threading.Thread(target=call, daemon=True)
        caller.start()
        time.sleep(0.001)
        thread.close()
        caller.join(10)
        assert ends


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system binds no threads to cores")
async def test_cores_that_this_process_may_not_use_do_not_count() -> None:
    def bound() -> int:
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # of this thread, which ends
        return usable_cores()

    assert await asyncio.to_thread(bound) == 1
