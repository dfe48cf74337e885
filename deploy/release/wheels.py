"""Builds a source distribution, and a wheel for each platform that this machine can compile for.

For Linux, zig is compiler and linker, so that a wheel needs no newer C library than it says; for Windows, mingw-w64 is.
A platform is left out if its linker or Rust's standard library for it is missing: ``rustup target add TARGET``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent

# Each target with what its wheel is compatible with.
LINUX = {
    "x86_64-unknown-linux-gnu": "manylinux2014",
    "aarch64-unknown-linux-gnu": "manylinux2014",
    "x86_64-unknown-linux-musl": "musllinux_1_2",
    "aarch64-unknown-linux-musl": "musllinux_1_2",
}
WINDOWS, WINDOWS_LINKER = "x86_64-pc-windows-gnu", "x86_64-w64-mingw32-gcc"
# Built where they are tested: natively, by .github/workflows/release.yml.
ELSEWHERE = ("x86_64-apple-darwin", "aarch64-apple-darwin", "x86_64-pc-windows-msvc")


def missing_for(target: str) -> str | None:
    """What a build for a target needs and this machine lacks; None if it has everything."""
    if target == WINDOWS and shutil.which(WINDOWS_LINKER) is None:
        return f"there is no {WINDOWS_LINKER} (Debian: mingw-w64)"
    place = subprocess.run(
        ["rustc", "--print", "target-libdir", "--target", target], capture_output=True, text=True, check=True
    )
    if not any(Path(place.stdout.strip()).glob("libstd-*")):
        return f"Rust's standard library is missing: rustup target add {target}"
    return None


def maturin(*arguments: str) -> None:
    """Run maturin at the top of the project, with zig of this environment."""
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYO3_PYTHON", None)  # the wheels are for no interpreter of this machine
    subprocess.run([str(BIN / "maturin"), *arguments], cwd=TOP, env=environment, check=True)


def main() -> None:
    """Build what can be built. Exit with an error if a build fails, or a named target can't be compiled for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=TOP / "dist", help="folder of what is built")
    parser.add_argument("--target", action="append", choices=[*LINUX, WINDOWS], help="build for these targets only")
    options = parser.parse_args()
    out = str(options.out.absolute())
    left_out = [f"{target}: built by .github/workflows/release.yml" for target in ELSEWHERE]
    maturin("sdist", "--out", out)
    for target in options.target or [*LINUX, WINDOWS]:
        if missing := missing_for(target):
            if options.target:
                sys.exit(f"{target}: {missing}")
            left_out.insert(0, f"{target}: {missing}")
            continue
        linking = ["--zig", "--compatibility", LINUX[target]] if target in LINUX else []
        smallest = ["--release", "--compression-level", "9"]
        maturin("build", *smallest, "--locked", "--features", "abi3", "--out", out, "--target", target, *linking)
    for line in left_out:
        print(f"left out: {line}")


if __name__ == "__main__":
    main()
