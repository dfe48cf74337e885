"""The clock of a store in PostgreSQL: functions in the database that read it and let it advance.

It counts the time in which gateways had the store open: each lets it advance every `TICK_SECONDS`, by the time that has
passed since the last tick by the system's clock of the database, but by at most `_STEP_MS`. So a system's clock that is
set counts as a step, however far it is set, and one that is set back counts for nothing. Between two ticks the store's
clock advances in the same way. ``docs/decisions/0378`` gives the reasons.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NOW", "TICK", "TICKS", "TICK_SECONDS"]

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
