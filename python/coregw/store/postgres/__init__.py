"""A store in PostgreSQL, for gateways on many machines; chunks of payloads in a bucket, or in rows.

Needs the extra ``postgres``, and for a bucket the extra ``s3``. All decisions are made in the database: an object of
the bucket is written once, under a random name, and means nothing before a row names it.

```
gateway ── pool of 4 ──┐                 ┌── pages, roots, records, payloads up to 64 KiB (1 MiB without a bucket)
gateway ── pool of 4 ──┼── PostgreSQL ───┤
gateway ── pool of 4 ──┘                 └── which upload holds a payload ──> chunks of 1 MiB: a bucket, or rows
```

``docs/decisions/0230`` gives the reasons, ``docs/scaling.md`` what an operator has to know.
"""

from coregw.extras import missing_extra

try:
    import asyncpg  # noqa: F401 - says which extra is missing
except ModuleNotFoundError as error:
    raise missing_extra(error, "a store in PostgreSQL", "postgres") from error

from coregw.store.postgres.store import PostgresStore, open_store

__all__ = ["PostgresStore", "open_store"]
