-- Runs as people read them: four views with the same columns, so that a page is a union of pages. Joins are written as
-- look-ups, because the planner may take a long table for an empty one and scan it for each row.

CREATE VIEW unfinished_run AS
SELECT r.run_id, r.lane, r.seq, j.scope_id, j.job_id, d.handler,
    CASE WHEN l.run_id IS DISTINCT FROM r.run_id THEN 'queued' WHEN l.leased THEN 'running' ELSE 'retrying' END AS state,
    r.cause, r.due, r.event_id, r.replay_of, r.covers_from, r.covers_to, r.missed_count, r.queued_at,
    a.first_started_at, a.started_at, NULL::timestamptz AS ended_at,
    CASE WHEN a.id IS NULL THEN r.start_at ELSE a.retry_at END AS next_attempt_at,
    coalesce(a.attempt, 0) AS attempt, NULL::text AS outcome, a.error, NULL::text AS reason, NULL::bigint AS records,
    a.node_id, a.token, a.earlier, r.start_at IS NOT NULL AS is_delayed
FROM run r
CROSS JOIN LATERAL (SELECT * FROM lane WHERE id = r.lane OFFSET 0) l
CROSS JOIN LATERAL (SELECT scope_id, job_id FROM job WHERE lane = r.lane OFFSET 0) j
CROSS JOIN LATERAL (SELECT handler FROM definition WHERE id = r.definition OFFSET 0) d
LEFT JOIN LATERAL (SELECT l.* WHERE l.run_id = r.run_id) a ON true;

-- Triggered in a committed transaction of an application, not yet in their lanes.
CREATE VIEW arriving_run AS
SELECT r.run_id, r.lane, 4611686018427387904 + r.id AS seq, j.scope_id, j.job_id, d.handler, 'queued' AS state, r.cause,
    NULL::timestamptz AS due, NULL::text AS event_id, NULL::uuid AS replay_of, NULL::timestamptz AS covers_from,
    NULL::timestamptz AS covers_to, 0 AS missed_count, r.queued_at, NULL::timestamptz AS first_started_at,
    NULL::timestamptz AS started_at, NULL::timestamptz AS ended_at, r.start_at AS next_attempt_at, 0 AS attempt,
    NULL::text AS outcome, NULL::text AS error, NULL::text AS reason, NULL::bigint AS records, NULL::text AS node_id,
    NULL::bigint AS token, NULL::jsonb AS earlier, r.start_at IS NOT NULL AS is_delayed
FROM arrival r
CROSS JOIN LATERAL (SELECT scope_id, job_id FROM job WHERE lane = r.lane OFFSET 0) j
CROSS JOIN LATERAL (SELECT handler FROM definition WHERE id = r.definition OFFSET 0) d;

CREATE VIEW finished_run AS
SELECT h.run_id, h.lane, h.seq, j.scope_id, j.job_id, h.handler, h.state, h.cause, h.due, h.event_id, h.replay_of,
    h.covers_from, h.covers_to, h.missed_count, h.queued_at, h.first_started_at, h.started_at, h.ended_at,
    NULL::timestamptz AS next_attempt_at, h.attempt, h.outcome, h.error, h.reason, h.records, h.node_id, h.token,
    h.earlier, false AS is_delayed
FROM history h CROSS JOIN LATERAL (SELECT scope_id, job_id FROM job WHERE lane = h.lane OFFSET 0) j;

CREATE VIEW dead_run AS
SELECT h.run_id, h.lane, h.seq, h.scope_id, j.job_id, h.handler, h.state, h.cause, h.due, h.event_id, h.replay_of,
    h.covers_from, h.covers_to, h.missed_count, h.queued_at, h.first_started_at, h.started_at, h.ended_at,
    NULL::timestamptz AS next_attempt_at, h.attempt, h.outcome, h.error, h.reason, h.records, h.node_id, h.token,
    h.earlier, false AS is_delayed
FROM letter h CROSS JOIN LATERAL (SELECT job_id FROM job WHERE lane = h.lane OFFSET 0) j;

CREATE FUNCTION one_run(p_scope text, p_run uuid) RETURNS SETOF finished_run LANGUAGE sql STABLE AS $$
    SELECT * FROM unfinished_run WHERE run_id = p_run AND scope_id = p_scope
    UNION ALL SELECT * FROM finished_run WHERE run_id = p_run AND scope_id = p_scope
    UNION ALL SELECT * FROM dead_run WHERE run_id = p_run AND scope_id = p_scope
    UNION ALL SELECT * FROM arriving_run WHERE run_id = p_run AND scope_id = p_scope
$$;

-- Newest first by trigger order (HIST-1). Each view returns its own newest, by its own index.
CREATE FUNCTION history_page(p_scope text, p_job text, p_limit integer) RETURNS SETOF finished_run
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_lane bigint := (SELECT lane FROM job WHERE scope_id = p_scope AND job_id = p_job);
BEGIN
    RETURN QUERY
    SELECT * FROM (
        (SELECT * FROM unfinished_run r WHERE r.run_id = ANY (ARRAY(
            SELECT w.run_id FROM run w WHERE w.lane = v_lane AND w.start_at IS NULL ORDER BY w.seq DESC LIMIT p_limit)))
        UNION ALL
        (SELECT * FROM unfinished_run r WHERE r.run_id = ANY (ARRAY(
            SELECT w.run_id FROM run w WHERE w.lane = v_lane AND w.start_at IS NOT NULL
            ORDER BY w.seq DESC LIMIT p_limit)))
        UNION ALL (SELECT * FROM finished_run WHERE lane = v_lane ORDER BY seq DESC LIMIT p_limit)
        UNION ALL (SELECT * FROM dead_run WHERE lane = v_lane ORDER BY seq DESC LIMIT p_limit)
        UNION ALL (SELECT * FROM arriving_run WHERE lane = v_lane ORDER BY seq DESC LIMIT p_limit)
    ) x ORDER BY x.seq DESC LIMIT p_limit;
END $$;

-- Oldest first. If the letter `after` has left the list, its place is known from the history.
CREATE FUNCTION letter_page(p_scope text, p_job text, p_after uuid, p_limit integer) RETURNS SETOF finished_run
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_lane bigint;
    v_ended timestamptz := '-infinity';
    v_after uuid := coalesce(p_after, '00000000-0000-0000-0000-000000000000');
BEGIN
    IF p_after IS NOT NULL THEN
        SELECT ended_at INTO v_ended FROM one_run(p_scope, p_after);
    END IF;
    IF p_job IS NULL THEN
        RETURN QUERY SELECT * FROM dead_run r WHERE r.scope_id = p_scope AND (r.ended_at, r.run_id) > (v_ended, v_after)
            ORDER BY r.ended_at, r.run_id LIMIT p_limit;
        RETURN;
    END IF;
    SELECT lane INTO v_lane FROM job WHERE scope_id = p_scope AND job_id = p_job;
    RETURN QUERY SELECT * FROM dead_run r WHERE r.lane = v_lane AND (r.ended_at, r.run_id) > (v_ended, v_after)
        ORDER BY r.ended_at, r.run_id LIMIT p_limit;
END $$;

CREATE VIEW stored_job AS
SELECT j.lane, j.scope_id, j.job_id, j.definition, j.revision, j.owner, j.paused, j.next_due, j.decided,
    l.unfinished - l.leased::integer + (SELECT count(*) FROM arrival a WHERE a.lane = j.lane)::integer AS queued,
    CASE WHEN l.leased THEN l.run_id END AS running, l.last_attempt_at, l.last_success_at, l.last_failure_at
FROM job j CROSS JOIN LATERAL (SELECT * FROM lane WHERE id = j.lane OFFSET 0) l;

CREATE FUNCTION job_page(p_scope text, p_after text, p_owner text, p_limit integer) RETURNS SETOF stored_job
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_owner IS NULL THEN
        RETURN QUERY SELECT * FROM stored_job
            WHERE scope_id = p_scope AND definition IS NOT NULL AND job_id > coalesce(p_after, '')
            ORDER BY job_id LIMIT p_limit;
    ELSE
        RETURN QUERY SELECT * FROM stored_job
            WHERE scope_id = p_scope AND owner = p_owner AND job_id > coalesce(p_after, '')
            ORDER BY job_id LIMIT p_limit;
    END IF;
END $$;

-- For all scopes together there is no join: each number is counted in the smallest table that has it.
CREATE FUNCTION census(p_now timestamptz, p_scope text)
RETURNS TABLE (at timestamptz, jobs bigint, queued bigint, running bigint, letters bigint, aside bigint, missing text[],
    untold timestamptz, unnoticed timestamptz) LANGUAGE plpgsql STABLE AS $$
BEGIN
    at := coalesce(p_now, clock_timestamp());
    IF p_scope IS NULL THEN
        jobs := (SELECT count(*) FROM job WHERE definition IS NOT NULL);
        running := (SELECT count(*) FROM lane WHERE place = 0 AND ready_at IS NOT NULL);
        queued := (SELECT count(*) FROM run) + (SELECT count(*) FROM arrival) - running;
        letters := (SELECT count(*) FROM letter);
    ELSE
        SELECT count(j.definition), coalesce(sum(l.unfinished), 0), count(*) FILTER (WHERE l.leased)
        INTO jobs, queued, running FROM job j JOIN lane l ON l.id = j.lane WHERE j.scope_id = p_scope;
        queued := queued - running
            + (SELECT count(*) FROM arrival r JOIN job j ON j.lane = r.lane WHERE j.scope_id = p_scope);
        letters := (SELECT count(*) FROM letter WHERE scope_id = p_scope);
    END IF;
    aside := (SELECT count(*) FROM set_aside);
    untold := (SELECT o.at FROM outbox o WHERE o.audience = 'events' ORDER BY o.id LIMIT 1);
    unnoticed := (SELECT o.at FROM outbox o WHERE o.audience = 'admins' ORDER BY o.id LIMIT 1);
    missing := ARRAY(
        WITH RECURSIVE h AS (  -- steps from one handler to the next in the index
            (SELECT handler FROM definition ORDER BY handler LIMIT 1)
            UNION ALL
            SELECT (SELECT d.handler FROM definition d WHERE d.handler > h.handler ORDER BY d.handler LIMIT 1)
            FROM h WHERE h.handler IS NOT NULL)
        SELECT h.handler FROM h WHERE h.handler IS NOT NULL
            AND CASE WHEN EXISTS (SELECT FROM node n WHERE n.seen_at + n.lease > at AND h.handler = ANY (n.handlers))
                THEN false
                ELSE EXISTS (SELECT FROM definition d WHERE d.handler = h.handler AND (
                    SELECT j.definition = d.id AND (p_scope IS NULL OR j.scope_id = p_scope) FROM job j
                    WHERE j.lane = d.lane) OFFSET 0)
                END
        ORDER BY h.handler);
    RETURN NEXT;
END $$;
