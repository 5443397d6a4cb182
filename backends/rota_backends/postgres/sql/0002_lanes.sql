-- Functions that the operations share. Those with an underscore are called inside others, with the lane's row locked.

CREATE FUNCTION _announce(p_tag text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- The tag lets a listener ignore its own process; without a tag nothing is sent.
    IF p_tag IS NOT NULL THEN
        PERFORM pg_notify('rota_' || md5(current_schema()), p_tag);
    END IF;
END $$;

-- True if facts are recorded for the audience events. In PL/pgSQL, which keeps plans: functions in SQL that are not
-- inlined are planned with every call.
CREATE FUNCTION _records_facts() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT value = 1 FROM setting WHERE name = '_facts'), false);
END $$;

-- The band of a definition, made if it is missing, and locked until this transaction ends: it is not pruned before the
-- lane is in it.
CREATE FUNCTION _band(p_queue text, p_priority integer, p_definition bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_handler text := (SELECT handler FROM definition WHERE id = p_definition);
    v_band integer;
BEGIN
    LOOP
        SELECT id INTO v_band FROM band WHERE priority = p_priority AND queue = p_queue AND handler = v_handler
        FOR KEY SHARE;
        EXIT WHEN FOUND;
        INSERT INTO band (priority, queue, handler) VALUES (p_priority, p_queue, v_handler)
        ON CONFLICT DO NOTHING RETURNING id INTO v_band;
        EXIT WHEN FOUND;
    END LOOP;
    RETURN v_band;
END $$;

-- Make every band that this lane can come into: by its definition and, while runs wait, by earlier definitions. They are
-- made here for one lane at a time and in one order. If calls for many lanes made them, two calls could wait for each other.
CREATE FUNCTION _make_bands(p_lane bigint, p_queue text, p_priority integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_is_busy boolean := EXISTS (SELECT FROM lane WHERE id = p_lane AND unfinished > 0);
BEGIN
    PERFORM _band(p_queue, p_priority, d.id) FROM (
        SELECT min(id) AS id FROM definition WHERE lane = p_lane AND (v_is_busy OR retired_at IS NULL)
        GROUP BY handler ORDER BY handler OFFSET 0) d;
END $$;

-- Set band, place and ready_at of the lane by its head; true if it may be claimed now.
CREATE FUNCTION _refresh(p_lane bigint, p_at timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    l lane;
    v_head bigint;
    v_start timestamptz;
    v_turns timestamptz;
    v_band integer;
BEGIN
    SELECT * INTO l FROM lane WHERE id = p_lane;
    IF l.run_id IS NOT NULL THEN
        v_head := l.definition;
        v_start := l.retry_at;
    ELSE
        -- Delayed runs that are due become waiting ones, once: to find the first of them each time would read all.
        WITH d AS (UPDATE run SET start_at = NULL WHERE lane = p_lane AND start_at <= p_at RETURNING seq)
        SELECT least(l.seq, min(seq)) INTO l.seq FROM d;
        SELECT definition INTO v_head FROM run
        WHERE lane = p_lane AND start_at IS NULL AND seq >= l.seq ORDER BY seq LIMIT 1;
        IF FOUND THEN
            IF l.is_mixed AND EXISTS (SELECT FROM definition WHERE lane = p_lane AND id <> v_head) THEN
                v_turns := (SELECT start_at FROM run WHERE lane = p_lane AND start_at > p_at ORDER BY start_at LIMIT 1);
            END IF;
            v_start := CASE WHEN l.ready_at <= p_at THEN l.ready_at ELSE p_at END;
        ELSE
            SELECT definition, start_at INTO v_head, v_start FROM run
            WHERE lane = p_lane AND start_at > p_at ORDER BY start_at LIMIT 1;
            v_head := coalesce(v_head, (SELECT definition FROM job WHERE lane = p_lane), l.definition);
        END IF;
    END IF;
    v_band := _band(l.queue, l.priority, v_head);
    UPDATE lane SET
        band = v_band, definition = v_head, seq = l.seq, turns_at = v_turns,
        place = CASE WHEN leased THEN 0 ELSE v_band END,
        ready_at = CASE WHEN leased THEN ready_at WHEN is_open THEN v_start END
    WHERE id = p_lane;
    RETURN NOT l.leased AND l.is_open AND coalesce(v_start <= p_at, false);
END $$;

-- Queue a run at the tail of its lane; true if that made the lane claimable.
CREATE FUNCTION _admit(p_run run, p_at timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    l lane;
    v_start timestamptz := coalesce(p_run.start_at, p_at);
    v_band integer;
BEGIN
    SELECT * INTO l FROM lane WHERE id = p_run.lane;
    p_run.seq := l.last_seq + 1;
    l.is_mixed := p_run.start_at IS NOT NULL
        OR (l.unfinished > 0 AND (l.is_mixed OR l.definition <> p_run.definition));
    INSERT INTO run VALUES (p_run.*);
    IF l.run_id IS NULL AND l.is_open AND (l.ready_at IS NULL OR l.ready_at > v_start) THEN
        v_band := CASE WHEN l.definition = p_run.definition THEN l.band
                       ELSE _band(l.queue, l.priority, p_run.definition) END;
        UPDATE lane SET last_seq = p_run.seq, unfinished = unfinished + 1, is_mixed = l.is_mixed, ready_at = v_start,
            turns_at = CASE WHEN p_run.start_at IS NULL THEN l.ready_at END, band = v_band, place = v_band,
            definition = p_run.definition WHERE id = l.id;
        RETURN v_start <= p_at;
    END IF;
    UPDATE lane SET last_seq = p_run.seq, unfinished = unfinished + 1, is_mixed = l.is_mixed WHERE id = l.id;
    RETURN false;
END $$;

-- End runs of one lane that hold no lease; the caller refreshes the lane.
CREATE FUNCTION _cancel(p_lane bigint, p_runs uuid[], p_reason text, p_by uuid, p_at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    l lane;
    v_ended integer;
    v_first bigint;
BEGIN
    SELECT * INTO l FROM lane WHERE id = p_lane;
    WITH d AS (DELETE FROM run WHERE run_id = ANY (p_runs) RETURNING *),
    h AS (INSERT INTO history (run_id, lane, seq, queued_at, first_started_at, ended_at, due, covers_from, covers_to,
        replay_of, ended_by, missed_count, attempt, state, cause, handler, event_id, error, reason, earlier)
    SELECT d.run_id, d.lane, d.seq, d.queued_at, a.first_started_at, p_at, d.due, d.covers_from, d.covers_to,
        d.replay_of, p_by, d.missed_count, coalesce(a.attempt, 0), 'cancelled', d.cause,
        (SELECT handler FROM definition WHERE id = d.definition), d.event_id, a.error, p_reason, a.earlier
    FROM d LEFT JOIN lane a ON a.id = p_lane AND a.run_id = d.run_id)
    SELECT count(*), min(seq) INTO v_ended, v_first FROM d;
    UPDATE lane SET unfinished = unfinished - v_ended, kept = kept + v_ended, oldest = least(oldest, v_first)
    WHERE id = p_lane;
    IF l.run_id = ANY (p_runs) THEN
        UPDATE lane SET run_id = NULL, ready_at = NULL, error = NULL, earlier = NULL, stop = NULL, stop_by = NULL
        WHERE id = p_lane;
    END IF;
END $$;

-- Move the lane's arrivals, triggered in transactions of applications, into the lane, in order (TX-1).
CREATE FUNCTION _drain_lane(p_lane bigint, p_at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    a record;
    v_run run;
    v_exists boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM arrival WHERE lane = p_lane) THEN
        RETURN;
    END IF;
    v_exists := EXISTS (SELECT FROM job WHERE lane = p_lane AND definition IS NOT NULL);
    FOR a IN
        WITH d AS (
            DELETE FROM arrival WHERE id = ANY (ARRAY(
                SELECT id FROM arrival WHERE lane = p_lane ORDER BY id FOR UPDATE SKIP LOCKED)) RETURNING *)
        SELECT * FROM d ORDER BY id
    LOOP
        v_run := NULL;
        v_run.run_id := a.run_id;
        v_run.lane := p_lane;
        v_run.definition := a.definition;
        v_run.queued_at := a.queued_at;
        v_run.start_at := a.start_at;
        v_run.missed_count := 0;
        v_run.depth := 0;
        v_run.cause := a.cause;
        v_run.payload := a.payload;
        PERFORM _admit(v_run, p_at);
        IF NOT v_exists THEN  -- the job was removed while the application's transaction was open
            PERFORM _cancel(p_lane, ARRAY[a.run_id], 'unscheduled', NULL, p_at);
        END IF;
    END LOOP;
END $$;

-- The same for every lane that is not locked just now. Does not wait.
CREATE FUNCTION _drain(p_now timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_lane bigint;
BEGIN
    FOR v_lane IN SELECT DISTINCT a.lane FROM (SELECT lane FROM arrival ORDER BY id LIMIT 500) a LOOP
        PERFORM FROM lane WHERE id = v_lane FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM _drain_lane(v_lane, coalesce(p_now, clock_timestamp()));
        END IF;
    END LOOP;
END $$;

-- Record decisions. Consecutive equal ones become one row, unless a run was fired between them (HIST-5).
CREATE FUNCTION _remember(p_lane bigint, p_decisions jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    d record;
    v_last decision;
    v_fired boolean := (SELECT fired_since FROM job WHERE lane = p_lane);
BEGIN
    FOR d IN
        SELECT * FROM jsonb_to_recordset(p_decisions)
            AS x(kind text, first timestamptz, last timestamptz, count integer, run_id uuid, detail text)
    LOOP
        SELECT * INTO v_last FROM decision WHERE lane = p_lane ORDER BY id DESC LIMIT 1;
        IF FOUND AND NOT v_fired
            AND (v_last.kind, v_last.run_id, v_last.detail) IS NOT DISTINCT FROM (d.kind, d.run_id, d.detail)
        THEN
            UPDATE decision SET first_at = least(first_at, d.first), last_at = greatest(last_at, d.last),
                count = decision.count + d.count WHERE id = v_last.id;
        ELSE
            INSERT INTO decision (lane, kind, first_at, last_at, count, run_id, detail)
            VALUES (p_lane, d.kind, d.first, d.last, d.count, d.run_id, d.detail);
        END IF;
        v_fired := false;
        UPDATE job SET fired_since = false WHERE lane = p_lane AND fired_since;
    END LOOP;
END $$;

-- The run or request that holds a key. The time is no condition: the planner might scan all keys by their times.
CREATE FUNCTION _holder(p_kind text, p_lane bigint, p_name text, p_at timestamptz) RETURNS uuid LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT CASE WHEN until > p_at THEN holder END FROM held_key
            WHERE kind = p_kind AND lane = p_lane AND name = p_name);
END $$;

-- The lane of a job, locked; null if there never was a job under this key.
CREATE FUNCTION _locked(p_scope text, p_job text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_lane bigint := (SELECT lane FROM job WHERE scope_id = p_scope AND job_id = p_job);
BEGIN
    PERFORM FROM lane WHERE id = v_lane FOR UPDATE;
    RETURN v_lane;
END $$;
