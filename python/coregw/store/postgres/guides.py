"""Guides in the database: their table, and the statements that follow and change them (`coregw.store.protocol`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from coregw.store.postgres.connections import ConnectionPool, Replicas
from coregw.store.protocol import Guide

__all__ = ["COUNTED_GUIDES", "DESCENTS_ON_PRIMARY", "GUIDES", "Guides", "guide_columns"]

GUIDES: Final = """
CREATE TABLE guides (
  page bytea PRIMARY KEY REFERENCES pages ON DELETE CASCADE, firsts bytea[] NOT NULL, below bytea[] NOT NULL);

-- As coregw_put, with a row for each inner page below one of the pages.
CREATE FUNCTION coregw_put_guided(
  page_keys bytea[], page_values bytea[], root_keys bytea[], root_values bytea[], record_keys bytea[],
  record_values bytea[], given_required bytea[], given_since bigint, given_attempt uuid,
  guide_pages bytea[], guide_firsts bytea[], guide_below bytea[],
  OUT outcome text, OUT missing bytea, OUT at bigint, OUT expiries bigint)
LANGUAGE plpgsql AS $$
BEGIN
  SELECT p.outcome, p.missing, p.at, p.expiries INTO outcome, missing, at, expiries
    FROM coregw_put(page_keys, page_values, root_keys, root_values, record_keys, record_values, given_required,
      given_since, given_attempt) p;
  IF outcome = 'written' THEN  -- so the pages are locked, and stay until the end of the transaction
    INSERT INTO guides SELECT g.page, array_agg(g.first ORDER BY g.first), array_agg(g.below ORDER BY g.first)
      FROM unnest(guide_pages, guide_firsts, guide_below) AS g (page, first, below) GROUP BY g.page ORDER BY g.page
      ON CONFLICT DO NOTHING;
  END IF;
END $$;
"""
"""The table, of the second version."""

COUNTED_GUIDES: Final = """
-- In line, so that no lookup of a key decompresses them.
ALTER TABLE guides ALTER firsts SET STORAGE EXTERNAL, ALTER below SET STORAGE EXTERNAL, SET (toast_tuple_target = 8160);

CREATE FUNCTION coregw_guide_size(page bytea, firsts bytea[], below bytea[]) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT octet_length(page) + coalesce(sum(octet_length(part)), 0) FROM unnest(firsts || below) AS part
$$;

CREATE FUNCTION coregw_count_guides() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO sizes SELECT CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END * sum(coregw_guide_size(page, firsts, below))
    FROM changed HAVING count(*) > 0;
  RETURN NULL;
END $$;
-- A guide is also deleted with its page, by the reference.
CREATE TRIGGER added AFTER INSERT ON guides REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION coregw_count_guides();
CREATE TRIGGER removed AFTER DELETE ON guides REFERENCING OLD TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION coregw_count_guides();
INSERT INTO sizes SELECT sum(coregw_guide_size(page, firsts, below)) FROM guides HAVING count(*) > 0;

-- Replace the guides of these pages, if they are held; those that are given below have a row for each inner page.
CREATE FUNCTION coregw_set_guides(
  given_pages bytea[], guide_pages bytea[], guide_firsts bytea[], guide_below bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE held bytea[];
BEGIN
  PERFORM coregw_enter();
  SELECT array_agg(p.key) INTO held FROM (
    SELECT key FROM pages WHERE key = ANY (given_pages) ORDER BY key FOR KEY SHARE) p;
  DELETE FROM guides WHERE page = ANY (given_pages);
  INSERT INTO guides SELECT g.page, array_agg(g.first ORDER BY g.first), array_agg(g.below ORDER BY g.first)
    FROM unnest(guide_pages, guide_firsts, guide_below) AS g (page, first, below) WHERE g.page = ANY (held)
    GROUP BY g.page ORDER BY g.page ON CONFLICT DO NOTHING;
END $$;
"""
"""The third version: guides count as stored bytes, and can be replaced."""

_DESCENTS: Final = """
WITH RECURSIVE descent (digest, keys, length) AS (
  SELECT page, array_agg(key), 0 FROM unnest($1::bytea[], $2::bytea[]) AS asked (page, key) GROUP BY page UNION ALL
  SELECT guide.below[step.number], step.keys, descent.length + 1
  FROM descent CROSS JOIN LATERAL (SELECT firsts, below FROM guides WHERE page = descent.digest OFFSET 0) AS guide
    CROSS JOIN LATERAL (
      SELECT greatest(width_bucket(key, guide.firsts), 1) AS number, array_agg(key) AS keys
      FROM unnest(descent.keys) AS key GROUP BY 1) AS step
  WHERE descent.length < 32)
SELECT key, value FROM pages WHERE key = ANY (ARRAY(SELECT digest FROM descent))"""
"""Pages, and those on the paths to keys: of each page the keys below it, in one row. A key before the first inner page
leads there, since a listing that begins before it may need it. ``OFFSET 0`` keeps the lookup by index: the planner
cannot know how few pages are on the paths."""

DESCENTS_ON_PRIMARY: Final = f"{_DESCENTS} UNION ALL SELECT NULL, expiries::text::bytea FROM state"  # noqa: S608
_LIST: Final = "SELECT page, firsts, below FROM guides WHERE $1::bytea IS NULL OR page > $1 ORDER BY page LIMIT $2"
_SET: Final = "SELECT coregw_set_guides($1, $2, $3, $4)"


class Guides:
    """The guides of a store. For tasks of one event loop.

    Args:
        database: The primary.
        replicas: Its standbys.
    """

    def __init__(self, database: ConnectionPool, replicas: Replicas) -> None:
        self._database = database
        self._replicas = replicas

    async def get_descents(self, keys: Mapping[bytes, Sequence[bytes]]) -> tuple[dict[bytes, bytes], int | None]:
        """See `coregw.store.protocol.GuidedStore.get_descents`. Also returns how often roots have expired, if asked."""
        asked = [(page, key) for page, wanted in keys.items() for key in wanted]
        arguments = [page for page, _ in asked], [key for _, key in asked]
        found: dict[bytes | None, bytes] = dict(await self._replicas.read(_DESCENTS, *arguments))
        expiries = None
        if not keys.keys() <= found.keys():
            found = dict(await self._database.read(DESCENTS_ON_PRIMARY, *arguments))
            expiries = int(found.pop(None))
        return {digest: value for digest, value in found.items() if digest is not None}, expiries

    async def list(self, after: bytes | None, limit: int) -> list[Guide]:
        """See `coregw.store.protocol.GuidedStore.list_guides`."""
        return [Guide(*row) for row in await self._database.read(_LIST, after, limit)]

    async def set(self, pages: Sequence[bytes], guides: Sequence[Guide]) -> None:
        """See `coregw.store.protocol.GuidedStore.set_guides`."""
        await self._database.write(_SET, sorted(pages), *guide_columns(guides))


def guide_columns(guides: Iterable[Guide]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Return columns with a row for each inner page: the page above it, where its keys begin, and its digest."""
    rows = [(guide.page, *pair) for guide in guides for pair in zip(guide.firsts, guide.below, strict=True)]
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
