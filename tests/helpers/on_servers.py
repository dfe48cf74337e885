"""Run pytest with gateways on PostgreSQL and a bucket: ``python tests/helpers/on_servers.py tests/...``.

Each data directory of a test stands for a schema of one database (`serving.begin`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from servers import bucket, postgres


def main() -> int:
    """Run pytest with the arguments of the command line. Returns its exit code."""
    with postgres(max_connections="200") as database, bucket() as s3:
        variables = {"COREGW_TEST_DATABASE": database.url, "COREGW_TEST_BUCKET": s3.url}
        command = [sys.executable, "-m", "pytest", *sys.argv[1:]]
        return subprocess.run(
            command, env=os.environ | variables, cwd=Path(__file__).parent.parent.parent, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
