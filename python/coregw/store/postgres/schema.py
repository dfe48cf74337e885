"""Tables and functions in the database, and the one path by which they are created and migrated.

```
pages     digest -> page             in line up to 8,160 bytes, so that a lookup reads one tuple
guides    digest -> firsts, below    of pages above inner pages: where the keys of each begin, and its digest
roots     root -> mark
records   key -> record              listed in byte order: bytea compares bytes
payloads  multihash -> size, data    `data` is null if the payload is in the chunks of an upload
chunks    upload, number -> data     unless chunks are objects in a bucket
uploads   uploads that are not committed, and those that are being dropped
late      roots on which a write relied during a collection
attempts  calls that must not be repeated, so that a lost answer is recognised
sizes     changes of the stored bytes, summed up from time to time
state     one row: the clock (below), the limits of collections, which store it is and where,
          and its claim to the bucket (`coregw.store.postgres.checks.identify`)
gate      locked in row share mode by each write, in exclusive mode by each step of a collection
```

A call is one function, so it is one round trip and one transaction. Writes that are made at once are one call, in which
each has an outcome. In read committed mode each statement of a function sees what was committed when the statement
began; so what `coregw_enter` reads once it has the lock stays true until the end of the transaction, which includes the
wait for a standby.

All functions lock rows in the order of their keys, and tables in the order above, but `guides` last.

The clock of the store counts the time in which gateways had the store open: each lets it advance every `TICK_SECONDS`,
by the time that has passed since the last tick by the system's clock of the database, but by at most `_STEP_MS`. So a
system's clock that is set counts as a step, however far it is set, and one that is set back counts for nothing. Between
two ticks the store's clock advances in the same way. ``docs/decisions/0378`` gives the reasons.
"""

from __future__ import annotations

from typing import Any, Final

from coregw.errors import InvalidInput
from coregw.store.postgres.guides import COUNTED_GUIDES, GUIDES
from coregw.store.protocol import Table

__all__ = ["NOW", "TICK", "TICKS", "TICK_SECONDS", "VERSION", "migrate"]

TICK_SECONDS: Final = 20.0

_STEP_MS: Final = 60_000

TICK: Final = "SELECT coregw_tick()"

NOW: Final = "(SELECT coregw_now())"
"""The time of the store's clock in milliseconds, in a query."""

TICKS: Final = f"""
-- The system's clock at the last tick.
ALTER TABLE state ADD system_ms bigint NOT NULL DEFAULT 0;

CREATE FUNCTION coregw_system_ms() RETURNS bigint LANGUAGE sql AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
$$;

-- What was stored last counts as stored now, whatever the system's clock says: dates came from it until now.
UPDATE state s SET system_ms = coregw_system_ms(), clock = greatest(s.clock,
  coalesce((SELECT max(dated) FROM roots), (SELECT max(dated) FROM payloads), coregw_system_ms()));

CREATE FUNCTION coregw_time(s state) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN s.clock + least(greatest(coregw_system_ms() - s.system_ms, 0), {_STEP_MS});
END $$;

CREATE FUNCTION coregw_now() RETURNS bigint LANGUAGE sql AS $$ SELECT coregw_time(s) FROM state s; $$;

CREATE FUNCTION coregw_tick() RETURNS void LANGUAGE plpgsql AS $$
DECLARE s state;
BEGIN
  SELECT * INTO s FROM state FOR UPDATE;
  UPDATE state SET clock = coregw_time(s), system_ms = coregw_system_ms();
END $$;

-- Hold collections off until the end of the transaction, and return the state, with the time as its clock. It never
-- goes back behind the begin of a collection.
CREATE OR REPLACE FUNCTION coregw_enter() RETURNS state LANGUAGE plpgsql AS $$
DECLARE s state;
BEGIN
  LOCK TABLE gate IN ROW SHARE MODE;
  SELECT * INTO s FROM state;
  s.clock := coregw_time(s);
  RETURN s;
END $$;

CREATE OR REPLACE FUNCTION coregw_begin(grace_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE began bigint;
BEGIN
  LOCK TABLE gate IN EXCLUSIVE MODE;
  DELETE FROM late;
  -- The limit is below the clock, and whatever is written from now on is dated from the clock on.
  PERFORM coregw_tick();
  UPDATE state s SET collecting = greatest(s.clock - greatest(grace_ms, 1), s.expired_before)
    RETURNING s.collecting INTO began;
  RETURN began;
END $$;
"""  # noqa: S608 - numbers of this module

_ROWS: Final = """
CREATE TABLE @TABLE@ (key bytea PRIMARY KEY, value bytea NOT NULL, dated bigint NOT NULL)
  WITH (toast_tuple_target = 8160);
ALTER TABLE @TABLE@ ALTER value SET STORAGE EXTERNAL;

CREATE FUNCTION coregw_write_@TABLE@(s state, given_at bigint, given_keys bytea[], given_values bytea[])
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE added bigint;
BEGIN
  IF cardinality(given_keys) = 0 THEN RETURN 0; END IF;
  WITH written AS (
    INSERT INTO @TABLE@ AS held (key, value, dated)
    SELECT k, v, given_at FROM unnest(given_keys, given_values) AS given (k, v)
    -- A row that is not updated is locked nevertheless. That writes to the WAL, so the commit waits for its standbys.
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, dated = greatest(held.dated, excluded.dated) @WHERE@
    RETURNING xmax = 0 AS is_new, octet_length(held.key) + octet_length(held.value) AS size)
  SELECT sum(size) FILTER (WHERE is_new) INTO added FROM written;
  RETURN coalesce(added, 0);
END $$;

CREATE FUNCTION coregw_delete_@TABLE@(given_keys bytea[], given_attempt uuid, OUT expiries bigint)
LANGUAGE plpgsql AS $$
DECLARE s state;
BEGIN
  SELECT * INTO s FROM coregw_enter();
  expiries := s.expiries;
  IF coregw_is_done(given_attempt) THEN RETURN; END IF;
  WITH locked AS (SELECT key FROM @TABLE@ WHERE key = ANY (given_keys) ORDER BY key FOR UPDATE),
    gone AS (DELETE FROM @TABLE@ t USING locked WHERE t.key = locked.key
      RETURNING octet_length(t.key) + octet_length(t.value) AS size)
  INSERT INTO sizes SELECT -sum(size) FROM gone HAVING count(*) > 0;
  INSERT INTO attempts VALUES (given_attempt, s.clock);
END $$;
"""
"""What each `Table` has."""

_STATE: Final = """
CREATE TABLE state (
  is_row boolean PRIMARY KEY DEFAULT true CHECK (is_row),
  store uuid NOT NULL,
  clock bigint NOT NULL DEFAULT 0,
  expired_before bigint NOT NULL DEFAULT 0,
  swept_from bigint NOT NULL DEFAULT 0,
  expiries bigint NOT NULL DEFAULT 0,
  collecting bigint,
  slice_ms bigint NOT NULL DEFAULT 0);
INSERT INTO state (store) VALUES (gen_random_uuid());
CREATE TABLE gate ();
CREATE TABLE late (root bytea PRIMARY KEY);
CREATE TABLE attempts (attempt uuid PRIMARY KEY, dated bigint NOT NULL);
CREATE TABLE sizes (change bigint NOT NULL);
CREATE TABLE uploads (upload uuid PRIMARY KEY, seen bigint NOT NULL, is_dropped boolean NOT NULL DEFAULT false);
CREATE TABLE chunks (upload uuid, number int, data bytea NOT NULL, PRIMARY KEY (upload, number));
ALTER TABLE chunks ALTER data SET STORAGE EXTERNAL;
CREATE TABLE payloads (
  multihash bytea PRIMARY KEY, size bigint NOT NULL, dated bigint NOT NULL, attempt uuid NOT NULL, upload uuid,
  data bytea);
ALTER TABLE payloads ALTER data SET STORAGE EXTERNAL;

-- Hold collections off until the end of the transaction, and return the state, with the time as its clock. It never
-- goes back behind the begin of a collection, even if the system's clock does.
CREATE FUNCTION coregw_enter() RETURNS state LANGUAGE plpgsql AS $$
DECLARE s state;
BEGIN
  LOCK TABLE gate IN ROW SHARE MODE;
  SELECT * INTO s FROM state;
  s.clock := greatest(s.clock, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  RETURN s;
END $$;

-- Whether a call was completed already. Writes to the WAL, so that what it did is durable when this commits.
CREATE FUNCTION coregw_is_done(given_attempt uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  UPDATE attempts SET dated = dated WHERE attempt = given_attempt;
  RETURN FOUND;
END $$;

"""

_WRITES: Final = """
-- Note roots that a collection takes for garbage: those of the given ones that are old, and others. All functions lock
-- in one order, so that no two wait for each other: what is late, pages, roots, records, and each of these by its key.
CREATE OR REPLACE FUNCTION coregw_note_late(s state, given_roots bytea[], others bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF s.collecting IS NULL THEN RETURN; END IF;
  INSERT INTO late SELECT key FROM (
      SELECT key FROM roots WHERE key = ANY (given_roots) AND dated >= s.expired_before AND dated < s.collecting
      UNION SELECT unnest(others)) AS noted (key)
    ORDER BY key ON CONFLICT DO NOTHING;
END $$;

-- Return a root that is not held, if one is missing; otherwise note what is late.
CREATE OR REPLACE FUNCTION coregw_require(s state, given_roots bytea[], others bytea[]) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE missing bytea;
BEGIN
  SELECT given INTO missing FROM unnest(given_roots) AS given
    WHERE NOT EXISTS (SELECT FROM roots WHERE key = given AND dated >= s.expired_before) LIMIT 1;
  IF missing IS NULL THEN PERFORM coregw_note_late(s, given_roots, others); END IF;
  RETURN missing;
END $$;

DROP FUNCTION IF EXISTS coregw_require(state, bytea[]);

CREATE OR REPLACE FUNCTION coregw_put(
  page_keys bytea[], page_values bytea[], root_keys bytea[], root_values bytea[], record_keys bytea[],
  record_values bytea[], given_required bytea[], given_since bigint, given_attempt uuid,
  OUT outcome text, OUT missing bytea, OUT at bigint, OUT expiries bigint)
LANGUAGE plpgsql AS $$
DECLARE s state; added bigint;
BEGIN
  SELECT * INTO s FROM coregw_enter();
  at := s.clock;
  expiries := s.expiries;
  outcome := 'written';
  IF given_attempt IS NOT NULL AND coregw_is_done(given_attempt) THEN RETURN; END IF;
  IF given_since IS NOT NULL AND cardinality(root_keys) > 0 THEN
    IF given_since <= s.swept_from THEN outcome := 'swept'; RETURN; END IF;
  END IF;
  missing := coregw_require(s, given_required, CASE WHEN given_since <= s.collecting THEN root_keys ELSE '{}' END);
  IF missing IS NOT NULL THEN outcome := 'missing'; RETURN; END IF;
  -- Not dated before the first put of the same change, even if the clock of another server is behind.
  added := coregw_write_pages(s, greatest(at, given_since), page_keys, page_values)
    + coregw_write_roots(s, at, root_keys, root_values) + coregw_write_records(s, at, record_keys, record_values);
  IF added <> 0 THEN INSERT INTO sizes VALUES (added); END IF;
  IF given_attempt IS NOT NULL THEN INSERT INTO attempts VALUES (given_attempt, at); END IF;
END $$;

CREATE OR REPLACE FUNCTION coregw_renew_roots(given_roots bytea[]) RETURNS TABLE (key bytea, size bigint)
LANGUAGE plpgsql AS $$
DECLARE s state;
BEGIN
  SELECT * INTO s FROM coregw_enter();
  PERFORM coregw_note_late(s, given_roots, '{}');
  RETURN QUERY WITH locked AS (
      SELECT r.key FROM roots r WHERE r.key = ANY (given_roots) AND r.dated >= s.expired_before
      ORDER BY r.key FOR UPDATE)
    UPDATE roots r SET dated = greatest(r.dated, s.clock) FROM locked l WHERE r.key = l.key RETURNING r.key, 0::bigint;
END $$;
"""
"""The sixth version: functions that databases of the first one have as well, but lock in other orders."""

_WRITES_OF_TABLE: Final = """
CREATE OR REPLACE FUNCTION coregw_set_@TABLE@(
  given_key bytea, given_expected bytea, given_value bytea, further_keys bytea[], further_values bytea[],
  given_required bytea[], given_attempt uuid, OUT outcome text, OUT missing bytea, OUT expiries bigint)
LANGUAGE plpgsql AS $$
DECLARE s state; found_value bytea; added bigint; is_shown boolean;
BEGIN
  SELECT * INTO s FROM coregw_enter();
  expiries := s.expiries;
  IF coregw_is_done(given_attempt) THEN outcome := 'written'; RETURN; END IF;
  missing := coregw_require(s, given_required, '{}');
  SELECT t.value INTO found_value FROM @TABLE@ t WHERE t.key = given_key AND @SHOWN@ FOR UPDATE;
  is_shown := FOUND;
  IF found_value IS DISTINCT FROM given_expected THEN
    outcome := CASE WHEN coregw_is_done(given_attempt) THEN 'written' ELSE 'different' END;
    RETURN;
  END IF;
  IF missing IS NOT NULL THEN outcome := 'missing'; RETURN; END IF;
  IF is_shown THEN
    UPDATE @TABLE@ t SET value = given_value, dated = s.clock WHERE t.key = given_key;
    added := octet_length(given_value) - octet_length(given_expected);
  ELSE
    INSERT INTO @TABLE@ AS t (key, value, dated) VALUES (given_key, given_value, s.clock)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, dated = excluded.dated WHERE NOT (@SHOWN@);
    IF NOT FOUND THEN  -- another call was faster
      PERFORM 1 FROM @TABLE@ t WHERE t.key = given_key FOR UPDATE;
      outcome := CASE WHEN coregw_is_done(given_attempt) THEN 'written' ELSE 'different' END;
      RETURN;
    END IF;
    added := octet_length(given_key) + octet_length(given_value);
  END IF;
  added := added + coregw_write_@TABLE@(s, s.clock, further_keys, further_values);
  INSERT INTO sizes VALUES (added);
  INSERT INTO attempts VALUES (given_attempt, s.clock);
  outcome := 'written';
END $$;
"""
"""What each `Table` has of these."""

_CALLS: Final = """
CREATE FUNCTION coregw_renew_payloads(given_multihashes bytea[]) RETURNS TABLE (key bytea, size bigint)
LANGUAGE plpgsql AS $$
DECLARE s state;
BEGIN
  SELECT * INTO s FROM coregw_enter();
  RETURN QUERY WITH locked AS (
      SELECT p.multihash FROM payloads p WHERE p.multihash = ANY (given_multihashes) ORDER BY p.multihash FOR UPDATE)
    UPDATE payloads p SET dated = greatest(p.dated, s.clock) FROM locked l WHERE p.multihash = l.multihash
    RETURNING p.multihash, p.size;
END $$;

-- Store payloads: data in line, or the upload that holds the chunks. Returns those that this attempt stored.
CREATE FUNCTION coregw_add_payloads(
  given_multihashes bytea[], given_sizes bigint[], given_data bytea[], given_uploads uuid[], given_attempt uuid)
RETURNS SETOF bytea LANGUAGE plpgsql AS $$
DECLARE s state; alive uuid[]; stored bytea[]; used uuid[]; kept bigint; added bigint;
BEGIN
  SELECT * INTO s FROM coregw_enter();
  SELECT coalesce(array_agg(u.upload), '{}') INTO alive FROM (
    SELECT upload FROM uploads WHERE upload = ANY (given_uploads) AND NOT is_dropped ORDER BY upload FOR UPDATE) u;
  WITH given AS (
      SELECT * FROM unnest(given_multihashes, given_sizes, given_data, given_uploads)
        AS g (multihash, size, data, upload)),
    written AS (
      INSERT INTO payloads AS held (multihash, size, dated, attempt, upload, data)
      SELECT g.multihash, g.size, s.clock, given_attempt, g.upload, g.data FROM given g
        WHERE g.upload IS NULL OR g.upload = ANY (alive)
      ON CONFLICT (multihash) DO UPDATE SET dated = greatest(held.dated, excluded.dated)
      RETURNING held.multihash, held.size, held.upload, held.attempt = given_attempt AS is_ours, xmax = 0 AS is_new),
    -- An upload that is gone was committed by a call whose answer was lost, or it was dropped.
    renewed AS (
      UPDATE payloads p SET dated = greatest(p.dated, s.clock) FROM given g
      WHERE p.multihash = g.multihash AND NOT (g.upload = ANY (alive))
      RETURNING p.multihash, p.size, p.upload, p.attempt = given_attempt AS is_ours, false AS is_new),
    every AS (SELECT * FROM written UNION ALL SELECT * FROM renewed)
  SELECT array_agg(e.multihash) FILTER (WHERE e.is_ours), coalesce(array_agg(e.upload) FILTER (WHERE e.is_ours), '{}'),
    count(*), sum(e.size + octet_length(e.multihash)) FILTER (WHERE e.is_new)
    INTO stored, used, kept, added FROM every e;
  IF kept < cardinality(given_multihashes) THEN
    RAISE EXCEPTION 'the upload was dropped' USING ERRCODE = 'CG001';
  END IF;
  DELETE FROM uploads WHERE upload = ANY (alive) AND upload = ANY (used);
  UPDATE uploads SET is_dropped = true WHERE upload = ANY (alive) AND NOT (upload = ANY (used));
  IF added > 0 THEN INSERT INTO sizes VALUES (added); END IF;
  RETURN QUERY SELECT unnest(stored);
END $$;
"""

_COLLECTION: Final = """
CREATE FUNCTION coregw_begin(grace_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE began bigint;
BEGIN
  LOCK TABLE gate IN EXCLUSIVE MODE;
  DELETE FROM late;
  -- The limit is below the clock, and whatever is written from now on is dated from the clock on.
  UPDATE state s SET clock = greatest(s.clock, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  UPDATE state s SET collecting = greatest(s.clock - greatest(grace_ms, 1), s.expired_before)
    RETURNING s.collecting INTO began;
  RETURN began;
END $$;

CREATE FUNCTION coregw_expire(given_limit bigint) RETURNS SETOF bytea LANGUAGE plpgsql AS $$
DECLARE found_roots bytea[];
BEGIN
  LOCK TABLE gate IN EXCLUSIVE MODE;
  WITH taken AS (DELETE FROM late WHERE root IN (SELECT root FROM late ORDER BY root LIMIT 65536) RETURNING root)
  SELECT array_agg(root ORDER BY root) INTO found_roots FROM taken;
  IF found_roots IS NULL THEN
    UPDATE state s SET expired_before = given_limit, swept_from = greatest(s.swept_from, given_limit),
      expiries = s.expiries + 1;
  END IF;
  RETURN QUERY SELECT unnest(found_roots);
END $$;

CREATE FUNCTION coregw_end(given_limit bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  LOCK TABLE gate IN EXCLUSIVE MODE;
  UPDATE state SET collecting = NULL WHERE collecting = given_limit;
  DELETE FROM late;
END $$;

CREATE FUNCTION coregw_keep(given_roots bytea[]) RETURNS SETOF bytea LANGUAGE plpgsql AS $$
DECLARE s state;
BEGIN
  SELECT * INTO s FROM coregw_enter();
  RETURN QUERY WITH locked AS (
      SELECT r.key FROM roots r WHERE r.key = ANY (given_roots) AND r.dated >= s.expired_before
      ORDER BY r.key FOR UPDATE)
    UPDATE roots r SET dated = greatest(r.dated, s.clock) FROM locked l WHERE r.key = l.key RETURNING r.key;
END $$;

-- What is locked is being stored again, so it is no garbage.
CREATE FUNCTION coregw_remove_roots(given_keys bytea[]) RETURNS SETOF bytea LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY WITH chosen AS (
      SELECT r.key FROM roots r WHERE r.key = ANY (given_keys) AND r.dated < (SELECT expired_before FROM state)
      FOR UPDATE SKIP LOCKED),
    gone AS (DELETE FROM roots r USING chosen c WHERE r.key = c.key
      RETURNING r.key, octet_length(r.key) + octet_length(r.value) AS size),
    counted AS (INSERT INTO sizes SELECT -sum(size) FROM gone HAVING count(*) > 0)
  SELECT gone.key FROM gone;
END $$;

CREATE FUNCTION coregw_remove_pages(given_keys bytea[], given_limit bigint) RETURNS SETOF bytea LANGUAGE plpgsql AS $$
BEGIN
  -- The date of a page that was put again may be too early by a slice.
  RETURN QUERY WITH chosen AS (
      SELECT p.key FROM pages p WHERE p.key = ANY (given_keys)
      AND p.dated <= given_limit - (SELECT slice_ms FROM state) FOR UPDATE SKIP LOCKED),
    gone AS (DELETE FROM pages p USING chosen c WHERE p.key = c.key
      RETURNING p.key, octet_length(p.key) + octet_length(p.value) AS size),
    counted AS (INSERT INTO sizes SELECT -sum(size) FROM gone HAVING count(*) > 0)
  SELECT gone.key FROM gone;
END $$;

-- Returns the uploads too, whose chunks the caller removes; until then they are listed as dropped.
CREATE FUNCTION coregw_remove_payloads(given_keys bytea[], given_limit bigint)
RETURNS TABLE (key bytea, upload uuid) LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY WITH chosen AS (
      SELECT p.multihash FROM payloads p WHERE p.multihash = ANY (given_keys) AND p.dated < given_limit
      FOR UPDATE SKIP LOCKED),
    gone AS (DELETE FROM payloads p USING chosen c WHERE p.multihash = c.multihash
      RETURNING p.multihash, p.upload, p.size + octet_length(p.multihash) AS size),
    counted AS (INSERT INTO sizes SELECT -sum(size) FROM gone HAVING count(*) > 0),
    dropped AS (INSERT INTO uploads SELECT gone.upload, 0, true FROM gone WHERE gone.upload IS NOT NULL)
  SELECT gone.multihash, gone.upload FROM gone;
END $$;
"""


def _first_version() -> str:
    pages = "WHERE held.dated <= excluded.dated - s.slice_ms OR held.value <> excluded.value"
    parts = [_STATE]
    for table in Table:
        text = _ROWS.replace("@TABLE@", table.value)
        parts.append(text.replace("@WHERE@", pages if table is Table.PAGES else ""))
    return "\n".join([*parts, _CALLS, _COLLECTION])


def _writes() -> str:
    parts = [_WRITES]
    for table in Table:
        shown = "t.dated >= s.expired_before" if table is Table.ROOTS else "true"
        parts.append(_WRITES_OF_TABLE.replace("@TABLE@", table.value).replace("@SHOWN@", shown))
    return "\n".join(parts)


_IDENTITY: Final = """
ALTER TABLE state ADD incarnation uuid NOT NULL DEFAULT gen_random_uuid(), ADD place text, ADD claim text,
  ADD next_claim text;
"""
"""What `coregw.store.postgres.checks.identify` keeps."""

_BATCHES: Final = """
-- Make writes at once, of which each has an outcome: what fails does not keep the rest from being written. What this
-- replaces stays for gateways of the version before, which go on until they are stopped.
--
-- Puts are numbered from 1. Each has elements of given_sinces, given_attempts (null if it may be repeated) and
-- given_replaced (the value of roots that are not renewed, or null), and rows of the kinds pages, roots, records and
-- requires. Its outcome is written; done, by an earlier attempt; renewed, since its roots are held with other values;
-- swept; or missing, with a root. Payloads are distinct, and in the order of their names.
CREATE FUNCTION coregw_write(
  given_sinces bigint[], given_attempts uuid[], given_replaced bytea[],
  row_puts int[], row_kinds text[], row_keys bytea[], row_values bytea[],
  guide_pages bytea[], guide_firsts bytea[], guide_below bytea[], given_renewals bytea[],
  payload_names bytea[], payload_data bytea[], payload_attempt uuid,
  OUT outcomes text[], OUT missing bytea[], OUT renewed bytea[], OUT at bigint, OUT expiries bigint)
LANGUAGE plpgsql AS $$
DECLARE
  s state; done uuid[]; page_keys bytea[]; page_values bytea[]; root_keys bytea[]; root_values bytea[];
  record_keys bytea[]; record_values bytea[]; relied_on bytea[]; begun_before bytea[]; held bytea[];
  all_renewals bytea[]; added_roots bigint; added bigint; is_outdated boolean;
BEGIN
  SELECT * INTO s FROM coregw_enter();
  at := s.clock;
  expiries := s.expiries;
  IF cardinality(given_sinces) > 0 THEN
    WITH begun AS (  -- waits for the end of the attempt that is repeated
      INSERT INTO attempts AS a SELECT given, s.clock FROM unnest(given_attempts) AS given WHERE given IS NOT NULL
      ON CONFLICT (attempt) DO UPDATE SET dated = a.dated RETURNING a.attempt, xmax <> 0 AS is_repeated)
    SELECT array_agg(b.attempt) FILTER (WHERE b.is_repeated) INTO done FROM begun b;
    WITH judged AS (
      SELECT g.put, bool_or(g.kind = 'roots') AS has_roots,
        bool_and(r.value IS NOT NULL AND r.value <> given_replaced[g.put]) FILTER (WHERE g.kind = 'roots') AS is_held,
        (array_agg(g.key) FILTER (WHERE g.kind = 'requires' AND r.key IS NULL))[1] AS lacking
      FROM unnest(row_puts, row_kinds, row_keys) AS g (put, kind, key)
        LEFT JOIN roots r ON r.key = g.key AND r.dated >= s.expired_before
      WHERE g.kind IN ('roots', 'requires') GROUP BY g.put)
    SELECT array_agg(CASE
        WHEN p.attempt = ANY (done) THEN 'done'
        WHEN j.is_held THEN 'renewed'
        WHEN j.has_roots AND p.since <= s.swept_from THEN 'swept'
        WHEN j.lacking IS NOT NULL THEN 'missing'
        ELSE 'written' END ORDER BY p.number), array_agg(j.lacking ORDER BY p.number)
      INTO outcomes, missing
      FROM unnest(given_sinces, given_attempts) WITH ORDINALITY AS p (since, attempt, number)
        LEFT JOIN judged j ON j.put = p.number;
    DELETE FROM attempts a USING unnest(given_attempts, outcomes) AS p (attempt, outcome)
      WHERE a.attempt = p.attempt AND p.outcome IN ('swept', 'missing');
    -- Of rows with the same key, those of the last put.
    SELECT array_agg(c.key ORDER BY c.key) FILTER (WHERE c.kind = 'pages'),
        array_agg(c.value ORDER BY c.key) FILTER (WHERE c.kind = 'pages'),
        array_agg(c.key ORDER BY c.key) FILTER (WHERE c.kind = 'roots'),
        array_agg(c.value ORDER BY c.key) FILTER (WHERE c.kind = 'roots'),
        array_agg(c.key ORDER BY c.key) FILTER (WHERE c.kind = 'records'),
        array_agg(c.value ORDER BY c.key) FILTER (WHERE c.kind = 'records'),
        array_agg(c.key) FILTER (WHERE c.kind = 'requires')
      INTO page_keys, page_values, root_keys, root_values, record_keys, record_values, relied_on
      FROM (SELECT DISTINCT ON (g.kind, g.key) g.* FROM unnest(row_puts, row_kinds, row_keys, row_values)
        AS g (put, kind, key, value) WHERE outcomes[g.put] = 'written' ORDER BY g.kind, g.key, g.put DESC) AS c;
    SELECT array_agg(g.key) FILTER (WHERE outcomes[g.put] = 'renewed'),
        array_agg(g.key) FILTER (WHERE outcomes[g.put] = 'written' AND given_sinces[g.put] <= s.collecting)
      INTO held, begun_before
      FROM unnest(row_puts, row_kinds, row_keys) AS g (put, kind, key) WHERE g.kind = 'roots';
  END IF;
  all_renewals := given_renewals || held;
  PERFORM coregw_note_late(s, relied_on || all_renewals, begun_before);
  added := 0;
  IF page_keys IS NOT NULL THEN
    -- Not dated before the first put of the same change, even if the clock of another server is behind.
    added := added + coregw_write_pages(s, greatest(at, (SELECT max(given) FROM unnest(given_sinces) AS given)),
      page_keys, page_values);
  END IF;
  IF root_keys IS NOT NULL OR cardinality(all_renewals) > 0 THEN
    WITH given AS (
        SELECT g.key, g.value FROM unnest(root_keys, root_values) AS g (key, value)
        UNION ALL SELECT r.key, r.value FROM roots r WHERE r.key = ANY (all_renewals) AND r.dated >= s.expired_before
          AND (root_keys IS NULL OR NOT r.key = ANY (root_keys))),
      -- One statement, since roots that are written and those that are renewed are locked in one order.
      changed AS (
        INSERT INTO roots AS r (key, value, dated) SELECT g.key, g.value, at FROM given g ORDER BY g.key
        ON CONFLICT (key) DO UPDATE SET dated = greatest(r.dated, excluded.dated),
          value = CASE WHEN r.key = ANY (root_keys) THEN excluded.value ELSE r.value END
        RETURNING r.key, r.value, xmax = 0 AS is_new, r.key = ANY (root_keys) AS is_put)
    SELECT array_agg(c.key), sum(octet_length(c.key) + octet_length(c.value)) FILTER (WHERE c.is_new),
        bool_or(c.is_put IS NOT TRUE AND (c.is_new OR (c.key = ANY (held) AND c.value = ANY (given_replaced))))
      INTO renewed, added_roots, is_outdated FROM changed c;
    IF is_outdated THEN
      RAISE EXCEPTION 'a root was removed or has lost pages meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    added := added + coalesce(added_roots, 0);
  END IF;
  IF record_keys IS NOT NULL THEN added := added + coregw_write_records(s, at, record_keys, record_values); END IF;
  IF added <> 0 THEN INSERT INTO sizes VALUES (added); END IF;
  IF cardinality(payload_names) > 0 THEN
    PERFORM coregw_add_payloads(payload_names, ARRAY(SELECT octet_length(data) FROM unnest(payload_data) AS data),
      payload_data, '{}', payload_attempt);
  END IF;
  IF cardinality(guide_pages) > 0 THEN
    INSERT INTO guides SELECT g.page, array_agg(g.first ORDER BY g.first), array_agg(g.below ORDER BY g.first)
      FROM (SELECT DISTINCT * FROM unnest(guide_pages, guide_firsts, guide_below)) AS g (page, first, below)
      WHERE g.page = ANY (page_keys) GROUP BY g.page ORDER BY g.page ON CONFLICT DO NOTHING;
  END IF;
END $$;
"""
"""The seventh version."""

_MIGRATIONS: Final = (_first_version(), GUIDES, COUNTED_GUIDES, TICKS, _IDENTITY, _writes(), _BATCHES)
"""Each brings a database from the version of its index to the next. A migration that was released never changes."""

VERSION: Final = len(_MIGRATIONS)
"""The version of tables and functions that this code needs."""


async def migrate(connection: Any) -> None:  # noqa: ANN401 - asyncpg has no types
    """Create the tables and functions, or bring them to `VERSION`, in one transaction.

    Raises:
        InvalidInput: A newer version of coregw has migrated them.
    """
    async with connection.transaction():
        # Two gateways that start at once must not both create the table below.
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('coregw'), hashtext(current_schema()))")
        await connection.execute("CREATE TABLE IF NOT EXISTS coregw_schema (version int NOT NULL)")
        version = await connection.fetchval("SELECT version FROM coregw_schema FOR UPDATE")
        if version is None:
            version = 0
            await connection.execute("INSERT INTO coregw_schema VALUES (0)")
        if version > VERSION:
            raise InvalidInput(
                f"the store in the database has the schema version {version}; this version of coregw knows up to "
                f"{VERSION}. Use the newer version of coregw that migrated it"
            )
        for script in _MIGRATIONS[version:]:
            await connection.execute(script)
        await connection.execute("UPDATE coregw_schema SET version = $1", VERSION)
