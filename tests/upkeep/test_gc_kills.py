"""A garbage collection that is killed before each step that changes the store."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coregw.errors import RootNotFound
from upkeep_site import Time, site_on

pytestmark = pytest.mark.anyio

_HELPERS = Path(__file__).parent.parent / "helpers"

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from coregw.store.rocksdb.database import Database
from upkeep_site import Time, site_on

left = int(sys.argv[2])

def counted(function):
    def call(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call

async def main():
    clock = Time()
    async with site_on(Path(sys.argv[1]), clock) as site:
        clock.seconds = 100.0
        for name in ("write", "sync", "flush", "compact"):
            setattr(Database, name, counted(getattr(Database, name)))
        await site.collect(grace=60)
        os._exit(0)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_whatever_step_it_was_killed_before_what_is_kept_is_whole_and_garbage_goes_next_time(
    tmp_path: Path,
) -> None:
    made = tmp_path / "made"
    async with site_on(made, Time()) as site:
        payloads = [await site.put(b"payload %d" % i) for i in range(3)]
        kept = await site.create({"file": payloads[0], **{f"folder/{i}": payloads[0] for i in range(300)}})
        garbage = await site.change(kept, "file", payloads[1], payloads[0])
        await site.publish(kept)
    outcomes = set()
    for step in range(1, 100):
        copy = tmp_path / f"step-{step}"
        shutil.copytree(made, copy)
        command = [sys.executable, "-c", KILLED, str(copy), str(step)]
        code = subprocess.run(command, cwd=_HELPERS, check=False, timeout=600).returncode
        clock = Time()
        async with site_on(copy, clock) as site:
            clock.seconds = 200.0
            await site.export(kept)
            try:
                await site.export(garbage)  # held, so whole
                outcomes.add("held")
            except RootNotFound:
                outcomes.add("expired")
            await site.collect(grace=60)
            await site.export(kept)
            assert [await site.is_stored(payload) for payload in payloads] == [True, False, False]
            with pytest.raises(RootNotFound):
                await site.export(garbage)
        shutil.rmtree(copy)
        if code == 0:
            break
        assert code == -9
    assert code == 0
    assert step > 8
    assert outcomes == {"held", "expired"}
