-- Ticks, triggers and events become runs.

-- Returns for each firing: fired, skipped, decided, blocked or stale. Lanes are locked in one order before anything is read.
CREATE FUNCTION fire(p_now timestamptz, p_tag text, p_items jsonb) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    f record;
    v_at timestamptz;
    v_results text[] := '{}';
    v_result text;
    v_woke boolean := false;
BEGIN
    PERFORM FROM lane WHERE id = ANY (ARRAY(
        SELECT j.lane FROM jsonb_to_recordset(p_items) AS i(scope text, job text)
        CROSS JOIN LATERAL (SELECT lane FROM job WHERE scope_id = i.scope AND job_id = i.job OFFSET 0) j))
    ORDER BY id FOR UPDATE;
    v_at := coalesce(p_now, clock_timestamp());
    FOR f IN
        SELECT i.*, j.lane FROM jsonb_to_recordset(p_items) AS i(
            n integer, scope text, job text, revision bigint, expected_due timestamptz, decided timestamptz, next_due timestamptz,
            run_id uuid, due timestamptz, first timestamptz, count integer, covers_from timestamptz,
            covers_to timestamptz, missed_count integer, queues_behind boolean, coalesced jsonb, decisions jsonb)
        LEFT JOIN LATERAL (SELECT lane FROM job WHERE scope_id = i.scope AND job_id = i.job OFFSET 0) j ON true
        ORDER BY i.n
    LOOP
        v_result := _fire(f.lane, v_at, f.revision, f.expected_due, f.decided, f.next_due, f.run_id, f.due, f.first,
            f.count, f.covers_from, f.covers_to, f.missed_count, f.queues_behind, f.coalesced, f.decisions);
        v_results := v_results || v_result;
        v_woke := v_woke OR v_result = 'fired';
    END LOOP;
    IF v_woke THEN
        PERFORM _announce(p_tag);
    END IF;
    RETURN v_results;
END $$;

CREATE FUNCTION _fire(
    p_lane bigint, p_at timestamptz, p_revision bigint, p_expected timestamptz, p_decided timestamptz,
    p_next_due timestamptz, p_run_id uuid, p_due timestamptz, p_first timestamptz, p_count integer,
    p_covers_from timestamptz, p_covers_to timestamptz, p_missed integer, p_queues_behind boolean, p_coalesced jsonb,
    p_decisions jsonb
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    j job;
    l lane;
    v_in_the_way uuid;
    v_run run;
    v_result text := 'decided';
BEGIN
    SELECT * INTO j FROM job WHERE lane = p_lane;
    IF j.definition IS NULL OR j.revision <> p_revision OR j.next_due IS DISTINCT FROM p_expected THEN
        RETURN 'stale';
    END IF;
    PERFORM _drain_lane(p_lane, p_at);
    SELECT * INTO l FROM lane WHERE id = p_lane;
    IF p_run_id IS NOT NULL AND l.leased AND l.lease_until <= p_at THEN
        RETURN 'blocked';
    END IF;
    PERFORM _remember(p_lane, p_decisions);
    IF p_run_id IS NOT NULL THEN
        v_in_the_way := coalesce(l.run_id, _first_startable(p_lane, p_at));
        IF v_in_the_way IS NOT NULL
            AND (NOT p_queues_behind OR _tick_waits_behind(p_lane, v_in_the_way, p_at))
        THEN
            PERFORM _remember(p_lane, jsonb_build_array(jsonb_build_object('kind', 'skipped',
                'first', coalesce(p_first, p_due), 'last', p_due, 'count', p_count, 'run_id', v_in_the_way)));
            v_result := 'skipped';
        ELSE
            v_run.run_id := p_run_id;
            v_run.lane := p_lane;
            v_run.definition := j.definition;
            v_run.queued_at := p_at;
            v_run.due := p_due;
            v_run.covers_from := p_covers_from;
            v_run.covers_to := p_covers_to;
            v_run.missed_count := p_missed;
            v_run.depth := 0;
            v_run.cause := 'cron';
            PERFORM _admit(v_run, p_at);
            PERFORM _remember(p_lane, p_coalesced);
            UPDATE job SET fired_since = true WHERE lane = p_lane;
            v_result := 'fired';
        END IF;
    END IF;
    -- The revision moves: a registration or pause that was planned before this must be planned again (CRON-4).
    UPDATE job SET decided = p_decided, next_due = p_next_due, revision = revision + 1 WHERE lane = p_lane;
    RETURN v_result;
END $$;

CREATE FUNCTION _first_startable(p_lane bigint, p_at timestamptz) RETURNS uuid LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT h.run_id FROM (
        (SELECT r.seq, r.run_id FROM run r WHERE r.lane = p_lane AND r.start_at IS NULL ORDER BY r.seq LIMIT 1)
        UNION ALL
        (SELECT r.seq, r.run_id FROM run r WHERE r.lane = p_lane AND r.start_at <= p_at ORDER BY r.seq LIMIT 1)
    ) h ORDER BY h.seq LIMIT 1);
END $$;

CREATE FUNCTION _tick_waits_behind(p_lane bigint, p_first uuid, p_at timestamptz) RETURNS boolean LANGUAGE plpgsql
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM run WHERE lane = p_lane AND start_at IS NULL AND run_id <> p_first AND cause = 'cron')
        OR EXISTS (SELECT FROM run WHERE lane = p_lane AND start_at <= p_at AND run_id <> p_first AND cause = 'cron');
END $$;

CREATE FUNCTION _is_known(p_run uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM run WHERE run_id = p_run) OR EXISTS (SELECT FROM history WHERE run_id = p_run)
        OR EXISTS (SELECT FROM letter WHERE run_id = p_run) OR EXISTS (SELECT FROM arrival WHERE run_id = p_run);
END $$;

CREATE TYPE enqueued AS (run_id uuid, refusal text, woke boolean);

-- Triggers, each stored or refused. The lanes are locked in one order. `scopes`, `causes` and `limits` have one entry where
-- all are alike; payloads, delays, replays, depths, handlers (see `_belongs`) and keys none where no trigger has one. A
-- trigger with a key comes alone (`_enqueue_keyed`). Returned are the triggers whose answer is not their own run, by number, and in a last row
-- without a number whether a lane became claimable.
CREATE FUNCTION enqueue(
    p_now timestamptz, p_tag text, p_scopes text[], p_jobs text[], p_runs uuid[], p_causes text[], p_limits integer[],
    p_payloads bytea[], p_delays interval[], p_replays uuid[], p_depths integer[], p_handlers text[],
    p_keys text[], p_ttls interval[]
) RETURNS TABLE (number integer, run_id uuid, refusal text, woke boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_at timestamptz;
    v_lanes bigint[];
    v_is_plain boolean;
    v_answer enqueued;
    v_woke boolean := false;
    v_numbers integer[];
    v_refusals text[];
BEGIN
    IF cardinality(p_keys) > 0 THEN
        v_answer := _enqueue_keyed(p_now, p_scopes[1], p_jobs[1], p_runs[1], p_causes[1], p_limits[1], p_payloads[1],
            p_delays[1], p_handlers[1], p_keys[1], p_ttls[1]);
        v_woke := v_answer.woke;
        IF v_answer.run_id IS DISTINCT FROM p_runs[1] THEN
            RETURN QUERY SELECT 1, v_answer.run_id, v_answer.refusal, false;
        END IF;
    ELSE
        v_lanes := ARRAY(
            SELECT j.lane FROM unnest(p_scopes, p_jobs) WITH ORDINALITY i(scope, job, n)
            LEFT JOIN LATERAL (
                SELECT lane FROM job WHERE scope_id = coalesce(i.scope, p_scopes[1]) AND job_id = i.job OFFSET 0) j
                ON true
            ORDER BY i.n);
        PERFORM FROM lane WHERE id = ANY (v_lanes) ORDER BY id FOR UPDATE;
        v_at := coalesce(p_now, clock_timestamp());
        v_is_plain := cardinality(p_runs) > 4 AND cardinality(p_delays) = 0 AND cardinality(p_replays) = 0;
        IF v_is_plain THEN
            v_is_plain := NOT EXISTS (SELECT FROM arrival);
        END IF;
        IF v_is_plain THEN
            SELECT * INTO v_woke, v_numbers, v_refusals
            FROM _enqueue_plain(v_lanes, v_at, p_runs, p_causes, p_limits, p_payloads, p_handlers);
            RETURN QUERY
            SELECT r.number, NULL::uuid, r.refusal, false FROM unnest(v_numbers, v_refusals) r(number, refusal);
        ELSE
            FOR i IN 1 .. cardinality(p_runs) LOOP  -- a few are cheaper one by one
                v_answer := NULL;
                IF p_replays[i] IS NOT NULL THEN
                    v_answer.run_id := _holder('replay', 0, coalesce(p_scopes[i], p_scopes[1]) || '/' || p_replays[i],
                        v_at);
                END IF;
                IF v_answer.run_id IS NULL THEN
                    v_answer := _enqueue(v_lanes[i], v_at, p_runs[i], coalesce(p_causes[i], p_causes[1]),
                        coalesce(p_limits[i], p_limits[1]), p_payloads[i], p_delays[i], p_replays[i],
                        coalesce(p_depths[i], 0), p_handlers[i]);
                    v_woke := v_woke OR v_answer.woke;
                END IF;
                IF v_answer.run_id IS DISTINCT FROM p_runs[i] THEN
                    RETURN QUERY SELECT i, v_answer.run_id, v_answer.refusal, false;
                END IF;
            END LOOP;
        END IF;
    END IF;
    IF v_woke THEN
        PERFORM _announce(p_tag);
    END IF;
    RETURN QUERY SELECT NULL::integer, NULL::uuid, NULL, v_woke;
END $$;

-- True if the job's handler is one of these names, which are joined by a character that no name contains (ID-1).
CREATE FUNCTION _belongs(p_definition bigint, p_handlers text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT handler FROM definition WHERE id = p_definition) = ANY (string_to_array(p_handlers, E'\x1f'));
END $$;

-- The same as `_enqueue` for many triggers in one statement, at a fraction of the cost: for triggers that may start at
-- once, no two with the same run id. Returned are whether a lane became claimable, and which were refused and why.
CREATE FUNCTION _enqueue_plain(
    p_lanes bigint[], p_at timestamptz, p_runs uuid[], p_causes text[], p_limits integer[], p_payloads bytea[],
    p_handlers text[], OUT woke boolean, OUT numbers integer[], OUT refusals text[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    WITH i AS MATERIALIZED (
        SELECT i.lane, i.run_id, i.cause, i.payload, i.n, coalesce(i.most, p_limits[1]) AS most, j.definition,
            l.last_seq, l.unfinished, k.run_id IS NOT NULL AS is_known,
            i.handlers IS NOT NULL AND NOT coalesce(_belongs(j.definition, i.handlers), true) AS is_anothers,
            l.run_id IS NULL AND l.is_open AND (l.ready_at IS NULL OR l.ready_at > p_at) AS is_idle
        FROM unnest(p_lanes, p_runs, p_causes, p_limits, p_payloads, p_handlers) WITH ORDINALITY
            i(lane, run_id, cause, most, payload, handlers, n)
        LEFT JOIN LATERAL (SELECT definition FROM job WHERE lane = i.lane OFFSET 0) j ON true
        LEFT JOIN LATERAL (SELECT * FROM lane WHERE id = i.lane OFFSET 0) l ON true
        LEFT JOIN LATERAL (  -- not EXISTS, for which the planner may hash all runs
            SELECT run_id FROM run WHERE run_id = i.run_id UNION ALL SELECT run_id FROM history WHERE run_id = i.run_id
            UNION ALL SELECT run_id FROM letter WHERE run_id = i.run_id LIMIT 1) k ON true
    ), a AS MATERIALIZED (
        SELECT i.*, count(*) FILTER (WHERE definition IS NOT NULL AND NOT is_known AND NOT is_anothers)
            OVER (PARTITION BY lane ORDER BY n) AS place
        FROM i
    ), r AS (
        INSERT INTO run (run_id, lane, seq, definition, queued_at, cause, payload)
        SELECT run_id, lane, last_seq + place, definition, p_at, coalesce(cause, p_causes[1]), payload FROM a
        WHERE definition IS NOT NULL AND NOT is_known AND NOT is_anothers AND unfinished + place <= most
        RETURNING lane, seq, definition
    ), u AS (
        UPDATE lane SET
            last_seq = g.last, unfinished = unfinished + g.count,
            is_mixed = unfinished > 0 AND (is_mixed OR definition <> g.head),
            ready_at = CASE WHEN b.new_band IS NOT NULL THEN p_at ELSE ready_at END,
            turns_at = CASE WHEN b.new_band IS NOT NULL THEN ready_at ELSE turns_at END,
            band = coalesce(b.new_band, band), place = coalesce(b.new_band, place),
            definition = CASE WHEN b.new_band IS NOT NULL THEN g.head ELSE definition END
        FROM (SELECT lane, count(*)::integer, max(seq) AS last, min(definition) AS head FROM r GROUP BY lane) g
        CROSS JOIN LATERAL (
            SELECT CASE WHEN l.run_id IS NOT NULL OR NOT l.is_open OR l.ready_at <= p_at THEN NULL  -- it stays
                        WHEN l.definition = g.head THEN l.band
                        ELSE _band(l.queue, l.priority, g.head) END AS new_band
            FROM lane l WHERE l.id = g.lane OFFSET 0) b
        WHERE lane.id = g.lane
    )
    SELECT bool_or(x.refusal IS NULL AND NOT is_known AND is_idle AND place = 1),
        array_agg(n::integer) FILTER (WHERE x.refusal IS NOT NULL), array_agg(x.refusal) FILTER (WHERE x.refusal IS NOT NULL)
    INTO woke, numbers, refusals
    FROM a CROSS JOIN LATERAL (SELECT CASE
        WHEN is_known THEN NULL
        WHEN definition IS NULL THEN 'no such job'
        WHEN is_anothers THEN 'other handler'
        WHEN unfinished + place > most THEN 'lane full' END AS refusal) x;
END $$;

CREATE FUNCTION _enqueue(
    p_lane bigint, p_at timestamptz, p_run uuid, p_cause text, p_limit integer, p_payload bytea, p_delay interval,
    p_replay uuid DEFAULT NULL, p_depth integer DEFAULT 0, p_handlers text DEFAULT NULL
) RETURNS enqueued LANGUAGE plpgsql AS $$
DECLARE
    v_definition bigint := (SELECT definition FROM job WHERE lane = p_lane);
    v_letter letter;
    v_replayed uuid;
    v_run run;
BEGIN
    IF _is_known(p_run) THEN  -- a repeat, whatever became of the job since
        RETURN ROW(p_run, NULL, false)::enqueued;
    END IF;
    IF v_definition IS NULL THEN
        RETURN ROW(NULL, 'no such job', false)::enqueued;
    END IF;
    IF p_handlers IS NOT NULL AND NOT _belongs(v_definition, p_handlers) THEN
        RETURN ROW(NULL, 'other handler', false)::enqueued;
    END IF;
    IF p_replay IS NOT NULL THEN
        SELECT * INTO v_letter FROM letter WHERE run_id = p_replay AND lane = p_lane;
        IF NOT FOUND THEN
            SELECT replayed_by INTO v_replayed FROM history WHERE run_id = p_replay AND lane = p_lane;
            IF v_replayed IS NULL THEN
                RETURN ROW(NULL, 'no such dead letter', false)::enqueued;
            END IF;
            RETURN ROW(v_replayed, NULL, false)::enqueued;
        END IF;
    END IF;
    PERFORM _drain_lane(p_lane, p_at);
    IF (SELECT unfinished FROM lane WHERE id = p_lane) >= p_limit THEN
        RETURN ROW(NULL, 'lane full', false)::enqueued;
    END IF;
    v_run.run_id := p_run;
    v_run.lane := p_lane;
    v_run.definition := v_definition;
    v_run.queued_at := p_at;
    v_run.start_at := CASE WHEN p_delay > '0' THEN p_at + p_delay END;
    v_run.missed_count := 0;
    v_run.depth := 0;
    v_run.cause := p_cause;
    v_run.payload := p_payload;
    IF p_replay IS NOT NULL THEN
        v_run.payload := v_letter.payload;
        v_run.event_id := v_letter.event_id;
        v_run.event := v_letter.event;
        v_run.depth := greatest(v_letter.depth, p_depth);
        v_run.replay_of := p_replay;
        PERFORM _unletter(p_replay, NULL, p_run);
        PERFORM _remember_replay(v_letter.scope_id, p_replay, p_run, p_at);
    END IF;
    RETURN ROW(p_run, NULL, _admit(v_run, p_at))::enqueued;
END $$;

-- For 7 days (rota.backend.REPLAY_MEMORY) a second replay of the same letter returns the first replay's run (RETRY-5).
CREATE FUNCTION _remember_replay(p_scope text, p_letter uuid, p_run uuid, p_at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO held_key VALUES ('replay', 0, p_scope || '/' || p_letter, p_run, p_at + interval '7 days')
    ON CONFLICT (kind, lane, name) DO UPDATE SET holder = excluded.holder, until = excluded.until;
END $$;

-- A letter becomes a DEAD run in history, under retention like any other.
CREATE FUNCTION _unletter(p_run uuid, p_by uuid, p_replayed_by uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH d AS (DELETE FROM letter WHERE run_id = p_run RETURNING *),
    h AS (INSERT INTO history (run_id, lane, seq, queued_at, started_at, first_started_at, ended_at, due, covers_from,
            covers_to, replay_of, replayed_by, ended_by, token, records, missed_count, attempt, state, cause, handler,
            event_id, outcome, node_id, error, reason, earlier)
        SELECT run_id, lane, seq, queued_at, started_at, first_started_at, ended_at, due, covers_from,
            covers_to, replay_of, p_replayed_by, coalesce(p_by, ended_by), token, records, missed_count, attempt, state,
            cause, handler, event_id, outcome, node_id, error, reason, earlier FROM d RETURNING lane, seq)
    UPDATE lane SET kept = kept + 1, oldest = least(oldest, h.seq) FROM h WHERE lane.id = h.lane;
END $$;

-- One trigger with a key. The key is taken before the lane is locked: while this waits for an open transaction that holds
-- the same key, it keeps nobody else waiting (TX-1).
CREATE FUNCTION _enqueue_keyed(
    p_now timestamptz, p_scope text, p_job text, p_run uuid, p_cause text, p_limit integer, p_payload bytea,
    p_delay interval, p_handlers text, p_key text, p_ttl interval
) RETURNS enqueued LANGUAGE plpgsql AS $$
DECLARE
    v_lane bigint;
    v_holder uuid;
    v_answer enqueued;
BEGIN
    IF _is_known(p_run) THEN
        RETURN ROW(p_run, NULL, false)::enqueued;
    END IF;
    SELECT lane INTO v_lane FROM job WHERE scope_id = p_scope AND job_id = p_job AND definition IS NOT NULL;
    IF NOT FOUND THEN
        IF _holds_key(p_scope, p_job, p_key, p_run, p_now) THEN
            RETURN ROW(p_run, NULL, false)::enqueued;
        END IF;
        RETURN ROW(NULL, 'no such job', false)::enqueued;
    END IF;
    v_holder := _take_key(v_lane, p_key, p_run, p_ttl, p_now);
    IF v_holder IS NOT NULL THEN
        RETURN ROW(v_holder, NULL, false)::enqueued;
    END IF;
    PERFORM FROM lane WHERE id = v_lane FOR UPDATE;
    v_answer := _enqueue(v_lane, coalesce(p_now, clock_timestamp()), p_run, p_cause, p_limit, p_payload, p_delay,
        NULL, 0, p_handlers);
    IF v_answer.refusal IS NOT NULL THEN
        DELETE FROM held_key WHERE kind = 'trigger' AND lane = v_lane AND name = p_key;
    END IF;
    RETURN v_answer;
END $$;

-- True if this run holds the key: it was stored in one step with the key, even if retention has forgotten it since.
CREATE FUNCTION _holds_key(p_scope text, p_job text, p_key text, p_run uuid, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((
        SELECT holder = p_run AND until > coalesce(p_now, clock_timestamp()) FROM held_key
        WHERE kind = 'trigger' AND name = p_key
            AND lane = (SELECT lane FROM job WHERE scope_id = p_scope AND job_id = p_job)), false);
END $$;

-- Takes the key, or returns the run that holds it: the same run if it was stored before (KEY-4).
CREATE FUNCTION _take_key(p_lane bigint, p_key text, p_run uuid, p_ttl interval, p_now timestamptz) RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
    v_holder uuid;
    v_at timestamptz;
BEGIN
    LOOP
        v_at := coalesce(p_now, clock_timestamp());
        INSERT INTO held_key AS k VALUES ('trigger', p_lane, p_key, p_run, v_at + p_ttl)
        ON CONFLICT (kind, lane, name) DO UPDATE SET holder = excluded.holder, until = excluded.until
        WHERE k.until <= v_at;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        SELECT holder INTO v_holder FROM held_key WHERE kind = 'trigger' AND lane = p_lane AND name = p_key;
        IF FOUND THEN
            RETURN v_holder;
        END IF;  -- it was pruned between the two: try again
    END LOOP;
END $$;

-- A trigger inside the caller's own transaction: reads, and inserts rows of its own; locks no lane (TX-1).
CREATE FUNCTION arrive(
    p_now timestamptz, p_tag text, p_scope text, p_job text, p_run uuid, p_cause text, p_limit integer,
    p_payload bytea, p_delay interval, p_handlers text, p_key text, p_ttl interval
) RETURNS enqueued LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz := coalesce(p_now, clock_timestamp());
    j job;
    v_holder uuid;
    v_refusal text;
BEGIN
    IF _is_known(p_run) THEN
        RETURN ROW(p_run, NULL, false)::enqueued;
    END IF;
    SELECT * INTO j FROM job WHERE scope_id = p_scope AND job_id = p_job AND definition IS NOT NULL;
    IF NOT FOUND THEN
        RETURN ROW(NULL, 'no such job', false)::enqueued;
    END IF;
    v_refusal := CASE
        WHEN p_handlers IS NOT NULL AND NOT _belongs(j.definition, p_handlers) THEN 'other handler'
        WHEN (SELECT unfinished FROM lane WHERE id = j.lane)
            + (SELECT count(*) FROM arrival WHERE lane = j.lane) >= p_limit THEN 'lane full' END;
    IF v_refusal IS NOT NULL THEN
        IF p_key IS NOT NULL THEN  -- a taken key answers before either
            v_holder := _holder('trigger', j.lane, p_key, v_at);
        END IF;
        RETURN ROW(v_holder, CASE WHEN v_holder IS NULL THEN v_refusal END, false)::enqueued;
    END IF;
    IF p_key IS NOT NULL THEN
        v_holder := _take_key(j.lane, p_key, p_run, p_ttl, p_now);
        IF v_holder IS NOT NULL THEN
            RETURN ROW(v_holder, NULL, false)::enqueued;
        END IF;
    END IF;
    INSERT INTO arrival (lane, run_id, definition, queued_at, start_at, cause, payload)
    VALUES (j.lane, p_run, j.definition, v_at, CASE WHEN p_delay > '0' THEN v_at + p_delay END, p_cause, p_payload);
    PERFORM _announce(p_tag);
    RETURN ROW(p_run, NULL, true)::enqueued;
END $$;

-- Those of the given kinds of events that some job hears.
CREATE FUNCTION heard(p_modules text[], p_types text[]) RETURNS TABLE (module text, type text) LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN QUERY SELECT i.* FROM unnest(p_modules, p_types) i(a_module, a_type) CROSS JOIN LATERAL (
        SELECT FROM job j WHERE j.source_module = i.a_module AND j.event_type = i.a_type LIMIT 1) x;
END $$;

-- The jobs that hear an event now (EVENT-1, rota.decide.events.hears).
CREATE FUNCTION listening(p_scope text, p_module text, p_type text, p_subject text)
RETURNS TABLE (scope_id text, job_id text) LANGUAGE sql STABLE AS $$
    SELECT j.scope_id, j.job_id FROM (  -- two look-ups: thousands may hear one kind, each with its own subject
        SELECT * FROM job WHERE source_module = p_module AND event_type = p_type
            AND scope_id IN (p_scope, '_platform') AND md5(subject)::uuid IS NULL
        UNION ALL
        SELECT * FROM job WHERE source_module = p_module AND event_type = p_type
            AND scope_id IN (p_scope, '_platform') AND md5(subject)::uuid = md5(p_subject)::uuid
            AND subject = p_subject) j
    WHERE p_module <> '_platform.jobs' OR j.scope_id <> p_scope OR j.job_id IS DISTINCT FROM p_subject
    ORDER BY j.lane
$$;

-- Store one event for the jobs that `listening` found, if they still hear it once their lanes are locked. With a bookmark,
-- nothing is stored if the bookmark has moved by then: a job registered after the move must not get events from before it
-- (EVENT-5).
CREATE FUNCTION notify_jobs(
    p_now timestamptz, p_tag text, p_scope text, p_module text, p_type text, p_subject text, p_event_id text,
    p_event text, p_occurred timestamptz, p_depth integer, p_memory interval, p_limit integer, p_too_deep text,
    p_rejection text, p_no_run uuid, p_scopes text[], p_jobs text[], p_occurrences text[], p_runs uuid[],
    p_bookmark text, p_position bigint
) RETURNS SETOF enqueued LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz;
    v_lanes bigint[];
    v_job job;
    v_answer enqueued;
    v_woke boolean := false;
BEGIN
    v_lanes := ARRAY(
        SELECT j.lane FROM unnest(p_scopes, p_jobs) WITH ORDINALITY i(scope, job, n)
        CROSS JOIN LATERAL (SELECT lane FROM job WHERE scope_id = i.scope AND job_id = i.job OFFSET 0) j
        ORDER BY i.n);
    PERFORM FROM lane WHERE id = ANY (v_lanes) ORDER BY id FOR UPDATE;
    IF p_bookmark IS NOT NULL AND coalesce((SELECT value FROM setting WHERE name = p_bookmark), 0) <> p_position THEN
        RETURN NEXT ROW(NULL, 'passed', false)::enqueued;
        RETURN;
    END IF;
    v_at := coalesce(p_now, clock_timestamp());
    FOR i IN 1 .. cardinality(p_runs) LOOP
        SELECT * INTO v_job FROM job WHERE lane = v_lanes[i];  -- as conditions the planner may use another index
        CONTINUE WHEN (v_job.source_module = p_module AND v_job.event_type = p_type
            AND (v_job.subject IS NULL OR v_job.subject = p_subject)) IS NOT true;
        v_answer := _notify(v_job, v_at, p_occurrences[i], p_runs[i], p_event_id, p_event,
            coalesce(p_occurred, v_at), p_depth, p_memory, p_limit, p_too_deep, p_rejection, p_no_run);
        v_woke := v_woke OR v_answer.woke;
        RETURN NEXT v_answer;
    END LOOP;
    IF v_woke THEN
        PERFORM _announce(p_tag);
    END IF;
END $$;

CREATE FUNCTION _notify(
    p_job job, p_at timestamptz, p_occurrence text, p_run uuid, p_event_id text, p_event text,
    p_occurred timestamptz, p_depth integer, p_memory interval, p_limit integer, p_too_deep text, p_rejection text,
    p_no_run uuid
) RETURNS enqueued LANGUAGE plpgsql AS $$
DECLARE
    v_lane bigint := p_job.lane;
    v_holder uuid;
    v_run run;
BEGIN
    v_holder := _holder('event', v_lane, p_occurrence, p_at);
    IF v_holder IS NOT NULL THEN
        RETURN ROW(v_holder, NULL, false)::enqueued;
    END IF;
    IF _is_known(p_run) THEN  -- the event's memory ended before its run did
        RETURN ROW(p_run, NULL, false)::enqueued;
    END IF;
    PERFORM _drain_lane(v_lane, p_at);
    IF p_too_deep IS NULL AND (SELECT unfinished FROM lane WHERE id = v_lane) >= p_limit THEN
        PERFORM _hold_event(v_lane, p_occurrence, p_no_run, p_at + p_memory);
        PERFORM _remember(v_lane, jsonb_build_array(jsonb_build_object('kind', 'rejected', 'first', p_occurred,
            'last', p_occurred, 'count', 1, 'detail', p_rejection)));
        RETURN ROW(NULL, 'lane full', false)::enqueued;
    END IF;
    PERFORM _hold_event(v_lane, p_occurrence, p_run, p_at + p_memory);
    IF p_too_deep IS NOT NULL THEN
        PERFORM _bury(p_job, p_at, p_run, p_event_id, p_event, p_depth, p_too_deep);
        RETURN ROW(p_run, NULL, true)::enqueued;
    END IF;
    v_run.run_id := p_run;
    v_run.lane := v_lane;
    v_run.definition := p_job.definition;
    v_run.queued_at := p_at;
    v_run.missed_count := 0;
    v_run.depth := p_depth;
    v_run.cause := 'event';
    v_run.event_id := p_event_id;
    v_run.event := p_event;
    RETURN ROW(p_run, NULL, _admit(v_run, p_at))::enqueued;
END $$;

-- Remember the event: by its run, or as rejected.
CREATE FUNCTION _hold_event(p_lane bigint, p_occurrence text, p_holder uuid, p_until timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO held_key VALUES ('event', p_lane, p_occurrence, p_holder, p_until)
    ON CONFLICT (kind, lane, name) DO UPDATE SET holder = excluded.holder, until = excluded.until;
END $$;

-- Record that the admins are to be told of these letters, whatever is recorded for events (RETRY-5).
CREATE FUNCTION _tell_admins(p_runs uuid[], p_definitions bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO outbox (audience, kind, at, lane, definition, run_id, attempt, depth, cause, due, started_at, error)
    SELECT 'admins', 'JobDeadLettered', max(l.ended_at), array_agg(l.lane), array_agg(i.definition),
        array_agg(l.run_id), array_agg(l.attempt), array_agg(l.depth + 1), array_agg(l.cause), array_agg(l.due),
        array_agg(l.started_at), array_agg(l.error)
    FROM unnest(p_runs, p_definitions) i(run_id, definition)
    CROSS JOIN LATERAL (SELECT * FROM letter WHERE run_id = i.run_id OFFSET 0) l;
END $$;

-- Store a run that is dead before it starts (EVENT-6).
CREATE FUNCTION _bury(
    p_job job, p_at timestamptz, p_run uuid, p_event_id text, p_event text, p_depth integer, p_reason text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE lane SET last_seq = last_seq + 1 WHERE id = p_job.lane;
    INSERT INTO letter (run_id, lane, seq, queued_at, ended_at, missed_count, attempt, state, cause, handler, event_id,
        error, reason, scope_id, depth, event, payload)
    SELECT p_run, p_job.lane, l.last_seq, p_at, p_at, 0, 0, 'dead', 'event', d.handler, p_event_id, p_reason, p_reason,
        p_job.scope_id, p_depth, p_event, d.payload
    FROM lane l, definition d WHERE l.id = p_job.lane AND d.id = p_job.definition;
    INSERT INTO outbox (lane, definition, at, run_id, depth, kind, cause, error)
    SELECT ARRAY[p_job.lane], ARRAY[p_job.definition], p_at, ARRAY[p_run], ARRAY[p_depth + 1], f.kind, ARRAY['event'],
        ARRAY[p_reason]
    FROM (VALUES (1, 'JobFailed'), (2, 'JobDeadLettered')) f(n, kind)
    WHERE _records_facts() ORDER BY f.n;
    PERFORM _tell_admins(ARRAY[p_run], ARRAY[p_job.definition]);
END $$;
