-- Registering, removing, pausing.

CREATE FUNCTION register(
    p_now timestamptz, p_tag text, p_scope text, p_job text, p_expected bigint, p_request uuid, p_changes boolean,
    p_body text, p_payload bytea, p_handler text, p_queue text, p_priority integer, p_module text, p_type text, p_subject text,
    p_next_due timestamptz, p_decided timestamptz, p_decisions jsonb, p_key text, p_ttl interval, p_owner text
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz;
    v_lane bigint;
    v_is_new boolean := false;
    j job;
    v_holder uuid;
    v_definition bigint;
BEGIN
    v_lane := _locked(p_scope, p_job);
    IF v_lane IS NULL THEN
        IF p_expected <> 0 OR NOT p_changes THEN
            RETURN 'conflict';
        END IF;
        INSERT INTO job (scope_id, job_id) VALUES (p_scope, p_job) ON CONFLICT DO NOTHING RETURNING lane INTO v_lane;
        v_is_new := FOUND;
        IF NOT v_is_new THEN  -- another node was first, and has committed
            v_lane := _locked(p_scope, p_job);
        END IF;
    END IF;
    v_at := coalesce(p_now, clock_timestamp());
    SELECT * INTO j FROM job WHERE lane = v_lane;
    IF p_request = ANY (j.requests) THEN
        RETURN 'stored';
    END IF;
    IF p_key IS NOT NULL THEN
        v_holder := _holder('register', v_lane, p_key, v_at);
        IF v_holder <> p_request THEN
            RETURN 'duplicate';
        END IF;
    END IF;
    IF j.revision <> p_expected THEN
        RETURN 'conflict';
    END IF;
    IF p_key IS NOT NULL AND v_holder IS NULL THEN
        INSERT INTO held_key VALUES ('register', v_lane, p_key, p_request, v_at + p_ttl)
        ON CONFLICT (kind, lane, name) DO UPDATE SET holder = excluded.holder, until = excluded.until;
    END IF;
    IF NOT p_changes THEN
        RETURN 'stored';
    END IF;
    UPDATE definition SET retired_at = coalesce(retired_at, v_at), queue = p_queue, priority = p_priority
    WHERE lane = v_lane;
    INSERT INTO definition (lane, handler, queue, priority, body, payload)
    VALUES (v_lane, p_handler, p_queue, p_priority, p_body, p_payload) RETURNING id INTO v_definition;
    UPDATE job SET definition = v_definition, owner = p_owner, revision = revision + 1, requests = (p_request || requests)[1:8],
        decided = coalesce(p_decided, decided), next_due = p_next_due,
        source_module = p_module, event_type = p_type, subject = p_subject WHERE lane = v_lane;
    PERFORM _remember(v_lane, p_decisions);
    PERFORM _make_bands(v_lane, p_queue, p_priority);
    IF v_is_new THEN
        INSERT INTO lane (id, band, definition, queue, priority)
        VALUES (v_lane, _band(p_queue, p_priority, v_definition), v_definition, p_queue, p_priority);
    ELSE
        UPDATE lane SET queue = p_queue, priority = p_priority, is_open = j.paused IS NULL WHERE id = v_lane;
        PERFORM _refresh(v_lane, v_at);
    END IF;
    IF _records_facts() THEN
        INSERT INTO outbox (lane, definition, at, revision, kind)
        VALUES (ARRAY[v_lane], ARRAY[v_definition], v_at, j.revision + 1, 'JobRegistered');
    END IF;
    PERFORM _announce(p_tag);
    RETURN 'stored';
END $$;

-- Jobs that are due by now, and when the next one will be.
CREATE FUNCTION due_page(p_now timestamptz, p_limit integer)
RETURNS TABLE (at timestamptz, next_at timestamptz, scope_id text, job_id text, definition bigint, revision bigint,
    next_due timestamptz, paused text) LANGUAGE sql STABLE AS $$
    SELECT t.at, (SELECT job.next_due FROM job WHERE job.next_due > t.at ORDER BY job.next_due LIMIT 1), j.*
    FROM (SELECT coalesce(p_now, statement_timestamp()) AS at) t LEFT JOIN LATERAL (
        SELECT job.scope_id, job.job_id, job.definition, job.revision, job.next_due, job.paused FROM job
        WHERE job.next_due <= t.at ORDER BY job.next_due, job.lane LIMIT p_limit) j ON true
$$;

CREATE FUNCTION remove(
    p_now timestamptz, p_scope text, p_job text, p_expected bigint, p_request uuid, p_decided timestamptz,
    p_decisions jsonb
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz;
    v_lane bigint;
    j job;
    l lane;
BEGIN
    v_lane := _locked(p_scope, p_job);
    SELECT * INTO j FROM job WHERE lane = v_lane;
    IF p_request = ANY (j.requests) THEN
        RETURN true;
    END IF;
    IF j.definition IS NULL OR j.revision <> p_expected THEN
        RETURN false;
    END IF;
    v_at := coalesce(p_now, clock_timestamp());
    PERFORM _drain_lane(v_lane, v_at);
    SELECT * INTO l FROM lane WHERE id = v_lane;
    PERFORM _cancel(v_lane, ARRAY(
        SELECT run_id FROM run WHERE lane = v_lane AND start_at IS NULL AND NOT (l.leased AND run_id = l.run_id)
        UNION ALL
        SELECT run_id FROM run WHERE lane = v_lane AND start_at IS NOT NULL AND NOT (l.leased AND run_id = l.run_id)
    ), 'unscheduled', p_request, v_at);
    UPDATE lane SET is_open = false, removed = leased, ready_at = CASE WHEN leased THEN ready_at END
    WHERE id = v_lane;
    UPDATE definition SET retired_at = v_at WHERE id = j.definition;
    UPDATE job SET definition = NULL, paused = NULL, owner = NULL, next_due = NULL, source_module = NULL,
        event_type = NULL, subject = NULL, revision = revision + 1, requests = (p_request || requests)[1:8],
        decided = coalesce(p_decided, decided) WHERE lane = v_lane;
    PERFORM _remember(v_lane, p_decisions);
    RETURN true;
END $$;

CREATE FUNCTION pause(
    p_now timestamptz, p_tag text, p_scope text, p_job text, p_reason text, p_expected bigint,
    p_next_due timestamptz, p_decided timestamptz, p_decisions jsonb
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz;
    v_lane bigint;
    j job;
BEGIN
    v_lane := _locked(p_scope, p_job);
    SELECT * INTO j FROM job WHERE lane = v_lane;
    IF j.definition IS NULL OR j.revision <> p_expected THEN
        RETURN false;
    END IF;
    v_at := coalesce(p_now, clock_timestamp());
    UPDATE job SET paused = p_reason, revision = revision + 1, next_due = p_next_due,
        decided = coalesce(p_decided, decided) WHERE lane = v_lane;
    PERFORM _remember(v_lane, p_decisions);
    UPDATE lane SET is_open = p_reason IS NULL WHERE id = v_lane;
    PERFORM _refresh(v_lane, v_at);
    PERFORM _announce(p_tag);
    RETURN true;
END $$;
