"""A generated tree of files, the same on every machine: sources, documents, pictures and a few large files."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from report import REPOSITORY

FILES = 15_000
QUICK_FILES = 1_500
BYTES_PER_FILE = 15_500
"""The mean size of a file, so that 15,000 files have 233 MB."""
_LARGE_EVERY = 1_000
"""One file in this many is large: it has a tenth of the bytes of as many files on average."""
_VERSION = 1
"""Counted up when the generated trees change."""


def user_tree(files: int) -> Path:
    """Return a folder with this many generated files, made on the first call in target/bench-data/."""
    folder = REPOSITORY / "target" / "bench-data" / f"user-tree-{_VERSION}-{files}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _generate(partial, files)
        partial.rename(folder)
    return folder


def changed(path: Path, seed: int) -> None:
    """Give a file other bytes, of the same size."""
    path.write_bytes(_text(random.Random(seed), path.stat().st_size))


def small_file(tree: Path) -> Path:
    """A file of a few kilobytes, to be changed."""
    return next(path for path in sorted(tree.rglob("*.txt")) if 1_000 < path.stat().st_size < 10_000)


def _generate(folder: Path, files: int) -> None:
    rng = random.Random(_VERSION)
    folders = [folder]
    for number in range(files // 20):
        above = folders[rng.randrange(len(folders))]
        if len(above.relative_to(folder).parts) < 6:
            folders.append(above / f"{rng.choice(_WORDS)}-{number}")
            folders[-1].mkdir()
    before = b""
    for number in range(files):
        data = _data(rng, number)
        if number % 50 == 7:
            data = before  # files that occur twice
        suffix = "bin" if number % 5 == 0 else "txt"
        path = folders[rng.randrange(len(folders))] / f"{rng.choice(_WORDS)}-{number}.{suffix}"
        path.write_bytes(data)
        if number % 25 == 0:
            path.chmod(0o755)
        before = data


def _data(rng: random.Random, number: int) -> bytes:
    """The bytes of a file: a fifth of the files are random, the others text, which packers compress."""
    if number % _LARGE_EVERY == 500:
        return rng.randbytes(_LARGE_EVERY * BYTES_PER_FILE // 5)
    mean = BYTES_PER_FILE * 4 // 5
    size = int(mean * rng.lognormvariate(-0.72, 1.2))  # of mean 1: many small files, some of hundreds of kilobytes
    return rng.randbytes(size) if number % 5 == 0 else _text(rng, size)


def _text(rng: random.Random, size: int) -> bytes:
    return b"\n".join(rng.choices(_LINES, k=size // 32 + 1))[:size]


_SOURCE = random.Random(0)
_WORDS = ["".join(_SOURCE.choices("etaoinshrdlucmfw", k=_SOURCE.randrange(2, 9))) for _ in range(1_000)]
_LINES = [" ".join(_SOURCE.choices(_WORDS, k=_SOURCE.randrange(4, 14))).encode() for _ in range(20_000)]
