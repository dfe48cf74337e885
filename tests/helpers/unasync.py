"""Makes the blocking client of the asyncio client: ``python tests/helpers/unasync.py`` writes ``client/sync.py``.

What cannot be made by substitution has twins by hand: ``aio_driver`` and ``sync_driver``, `AsyncFile` and `File`. A
rule that matches nothing is an error. Ruff removes imports that nothing uses any more, and joins lines.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parent.parent.parent / "python" / "coregw" / "client"
MADE = CLIENT / "sync.py"

RULES = {
    # of the language
    r"\basync (def|with|for)\b": r"\1",
    r"await in_(?:stoppable_)?thread\(([\w.]+)(?:, )?": r"\1(",
    r"\bawait ": "",
    r"\bAsyncGenerator\[([^]]+), None\]": r"Generator[\1, None, None]",
    r"\bAsyncGenerator,": "Generator,",
    r"\bCoroutine\[\w+, \w+, (\w+)\]": r"\1",
    # names
    r"\bAsyncDriver\b": "BlockingDriver",
    r"\baio_driver\b": "sync_driver",
    r"\b(_?)Async(Client|File|Publications|Run)\b": r"\1\2",
    r"\b_run_in_workers\b": "_run",
    # words
    r'"""`Client`, and the published names of its gateway.\n\n(.*\n)+?"""': (
        '"""`Client`, which blocks, and the published names of its gateway.\n\n'
        'Made of `aio` by ``python tests/helpers/unasync.py``: change that one, and run it.\n"""'
    ),
    r"the tasks of one event loop\. Use it as an asynchronous context manager, or call `aclose`": (
        "threads. Use it as a context manager, or call `close`"
    ),
    r" +gateways: What another client .*\n": "",
    r"Runs in the event loop\b": "Runs in another thread with connections of its own",
    r"\ban asyncio client\b": "a blocking client",
    r"`Publications` has the same methods": "`AsyncPublications` has the same methods",
}


def made() -> str:
    """The blocking client."""
    text = (CLIENT / "aio.py").read_text("utf-8")
    for pattern, replacement in RULES.items():
        text, count = re.subn(pattern, replacement, text)
        assert count, f"the rule {pattern!r} matches nothing"
    for command in (["check", "--fix-only", "--select=F401,I001"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", f"--stdin-filename={MADE}", "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    MADE.write_text(made(), "utf-8")
