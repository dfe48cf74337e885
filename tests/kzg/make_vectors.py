"""Makes ``vectors.json`` with the public setup: ``make_vectors.py TRUSTED_SETUP`` (c-kzg-4844's trusted_setup.txt)."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import coregw
from coregw.kzg.maps import slots_of
from kzg.prover import (
    Cells,
    Ceremony,
    Document,
    ListTree,
    MapTree,
    index_read,
    key_read,
    map_proven,
    range_read,
    resolved,
)

FILE = Path(__file__).with_name("vectors.json")


def cid(text: str) -> str:
    return coregw.payload_cid(text.encode())


def sharing(key: str, skip: int = 0) -> str:
    """Another key with the same first slot."""
    names = (f"other-{number}" for number in itertools.count())
    return next(itertools.islice((name for name in names if slots_of(name)[0] == slots_of(key)[0]), skip, None))


def vectors(setup: Cells) -> dict[str, tuple[str, Document, Document]]:
    """The operation, request and result of each vector, by name."""
    folder = MapTree(setup, {"@payload": cid("folder"), "readme": cid("readme")})
    other = sharing("docs")
    top = MapTree(setup, {"docs": folder.root.text, other: cid("other"), "profile/name": cid("name")})
    older = MapTree(setup, {"docs": cid("docs")}, version=2)
    plain = ListTree(setup, [cid(f"element {number}") for number in range(3)])
    long = ListTree(setup, [cid("same")] * 4095 + [cid("last")])
    chunks = ListTree(setup, [cid(f"chunk {number}") for number in range(4)], total=50, chunk=16)
    missing = next(f"missing-{n}" for n in range(99) if slots_of(f"missing-{n}")[0] != slots_of("docs")[0])
    return {
        "resolve a key": ("resolve", *resolved([top], ["profile/name"])),
        "resolve through two maps": ("resolve", *resolved([top, folder], ["docs", "readme"])),
        "resolve a payload": ("resolve", *resolved([top, folder], ["docs", "@payload"])),
        "resolve in a map of version 2": ("resolve", *resolved([older], ["docs"])),
        "read a key": ("read", *key_read(top, "docs")),
        "read a payload": ("read", *key_read(folder, "@payload")),
        "prove a key": ("map_proof", *map_proven(top, "profile/name")),
        "prove absence by an empty slot": ("map_proof", *map_proven(top, missing)),
        "prove absence by another leaf": ("map_proof", *map_proven(older, sharing("docs"))),
        "prove absence two levels down": ("map_proof", *map_proven(top, sharing("docs", 1))),
        "read an index": ("read", *index_read(plain, 1)),
        "read an index two levels down": ("read", *index_read(long, 4095)),
        "read an index of a list with sizes": ("read", *index_read(chunks, 3)),
        "read a range": ("read", *range_read(chunks, 15, 33)),
        "read a range to the end": ("read", *range_read(chunks, 40)),
        "read past a list's end": ("read", *range_read(chunks, 50, 60)),
    }


if __name__ == "__main__":
    made = vectors(Ceremony(Path(sys.argv[1])))
    documents = [
        {"name": name, "operation": operation, "request": request, "result": result}
        for name, (operation, request, result) in made.items()
    ]
    FILE.write_text(json.dumps(documents, indent=1) + "\n", "utf-8")
