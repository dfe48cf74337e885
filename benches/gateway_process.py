"""A gateway in a process whose interpreter can be kept busy: ``gateway_process.py [options of coregw serve]``.

Lines of standard input say what another thread of it does: ``hold SECONDS`` keeps the GIL, as a call that does not
release it; ``compute SECONDS`` runs Python code.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time

from coregw.__main__ import main


def _work() -> None:
    system = ctypes.PyDLL(None)  # keeps the GIL during calls
    for line in sys.stdin:
        what, seconds = line.split()
        if what == "hold":
            system.usleep(int(float(seconds) * 1e6))
        end = time.monotonic() + float(seconds)
        while what == "compute" and time.monotonic() < end:
            pass


if __name__ == "__main__":
    threading.Thread(target=_work, daemon=True).start()
    sys.argv = ["coregw", "serve", *sys.argv[1:]]
    main()
