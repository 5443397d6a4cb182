-- Letters, retention, the outbox, locks and bookmarks; then the settings all operations run under.

CREATE FUNCTION discard(p_run uuid, p_scope text, p_request uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM lane WHERE id = (SELECT lane FROM letter WHERE run_id = p_run) FOR UPDATE;
    IF EXISTS (SELECT FROM letter WHERE run_id = p_run AND scope_id = p_scope) THEN
        PERFORM _unletter(p_run, p_request, NULL);
        RETURN true;
    END IF;
    RETURN EXISTS (SELECT FROM history h JOIN job j ON j.lane = h.lane AND j.scope_id = p_scope
                   WHERE h.run_id = p_run AND h.state = 'dead' AND h.ended_by = p_request);
END $$;

-- Forget at most p_limit entries of each kind; lanes that somebody works on are left for the next time.
CREATE FUNCTION prune(p_now timestamptz, p_keep integer, p_age interval, p_letters interval, p_limit integer)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz := coalesce(p_now, clock_timestamp());
    v_lanes bigint[];
    v_gone integer;
    v_total integer := 0;
    v_run uuid;
    v_told bigint[];
BEGIN
    v_lanes := ARRAY(SELECT id FROM lane WHERE kept > p_keep LIMIT p_limit);
    v_lanes := ARRAY(SELECT id FROM lane WHERE id = ANY (v_lanes) FOR UPDATE SKIP LOCKED);
    WITH g AS (
        DELETE FROM history WHERE run_id = ANY (ARRAY(
            SELECT x.run_id FROM unnest(v_lanes) c(id)
            CROSS JOIN LATERAL (SELECT kept FROM lane WHERE id = c.id OFFSET 0) l
            CROSS JOIN LATERAL (
                SELECT run_id FROM history WHERE lane = c.id ORDER BY seq LIMIT greatest(l.kept - p_keep, 0)) x
            LIMIT p_limit)) RETURNING lane),
    n AS MATERIALIZED (SELECT lane, count(*)::integer AS gone FROM g GROUP BY lane),
    u AS (UPDATE lane SET kept = kept - n.gone FROM n WHERE id = n.lane)
    SELECT coalesce(sum(gone), 0) INTO v_gone FROM n;
    v_total := v_total + v_gone;

    v_lanes := ARRAY(SELECT DISTINCT x.lane FROM (
        SELECT lane FROM history WHERE ended_at < v_at - p_age ORDER BY ended_at LIMIT p_limit - v_total) x);
    v_lanes := ARRAY(SELECT id FROM lane WHERE id = ANY (v_lanes) FOR UPDATE SKIP LOCKED);
    WITH g AS (
        DELETE FROM history WHERE run_id = ANY (ARRAY(
            SELECT run_id FROM history WHERE ended_at < v_at - p_age AND lane = ANY (v_lanes)
            ORDER BY ended_at LIMIT p_limit - v_total)) RETURNING lane),
    n AS MATERIALIZED (SELECT lane, count(*)::integer AS gone FROM g GROUP BY lane),
    u AS (UPDATE lane SET kept = kept - n.gone FROM n WHERE id = n.lane)
    SELECT coalesce(sum(gone), 0) INTO v_gone FROM n;
    v_total := v_total + v_gone;

    FOR v_run IN SELECT run_id FROM letter WHERE ended_at < v_at - p_letters LIMIT p_limit LOOP
        PERFORM FROM lane WHERE id = (SELECT lane FROM letter WHERE run_id = v_run) FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM _unletter(v_run, NULL, NULL);
        END IF;
    END LOOP;

    DELETE FROM held_key WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM held_key WHERE until <= v_at ORDER BY until LIMIT p_limit - v_total FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    v_total := v_total + v_gone;

    DELETE FROM decision WHERE id = ANY (ARRAY(
        SELECT d.id FROM (SELECT lane FROM decision GROUP BY lane HAVING count(*) > 1000 LIMIT 10) c
        CROSS JOIN LATERAL (
            SELECT id FROM decision WHERE lane = c.lane ORDER BY id DESC OFFSET 1000 LIMIT p_limit) d));
    v_told := ARRAY(SELECT definition FROM outbox UNION SELECT definition FROM set_aside);
    DELETE FROM definition WHERE id = ANY (ARRAY(
        SELECT d.id FROM definition d WHERE d.retired_at < v_at - interval '1 hour'
            AND NOT EXISTS (SELECT FROM lane WHERE lane.id = d.lane AND lane.definition = d.id)
            AND NOT EXISTS (SELECT FROM run r WHERE r.lane = d.lane AND r.start_at IS NULL AND r.definition = d.id)
            AND NOT EXISTS (SELECT FROM run r WHERE r.lane = d.lane AND r.start_at IS NOT NULL AND r.definition = d.id)
            AND NOT EXISTS (SELECT FROM arrival a WHERE a.lane = d.lane)
            AND d.id <> ALL (v_told)
        ORDER BY d.retired_at LIMIT p_limit));
    DELETE FROM node WHERE node_id = ANY (ARRAY(
        SELECT node_id FROM node WHERE seen_at + lease <= v_at FOR UPDATE SKIP LOCKED));
    DELETE FROM hand WHERE NOT EXISTS (SELECT FROM node WHERE node.node_id = hand.node_id);
    RETURN v_total;
END $$;

-- Forget what was told, put aside what cannot be; false while another node relays.
CREATE FUNCTION _relay(
    p_now timestamptz, p_node text, p_done bigint[], p_aside bigint[], p_why text[], p_lease interval
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz;
    k named_lock;
BEGIN
    -- The lock is taken over or taken on now and then, not with every page.
    SELECT * INTO k FROM named_lock WHERE name = '_relay';
    v_at := coalesce(p_now, clock_timestamp());
    IF NOT FOUND OR k.holder IS DISTINCT FROM p_node OR k.until < v_at + p_lease / 2 THEN
        INSERT INTO named_lock AS l VALUES ('_relay', 1, p_node, v_at + p_lease)
        ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until, token = l.token + 1
        WHERE l.holder = p_node OR l.until <= v_at;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END IF;
    IF cardinality(p_aside) > 0 THEN
        WITH d AS (DELETE FROM outbox WHERE seq = ANY (p_aside) RETURNING *)
        INSERT INTO set_aside SELECT d.*, i.why FROM d JOIN unnest(p_aside, p_why) i(seq, why) ON i.seq = d.seq;
    END IF;
    IF cardinality(p_done) > 0 THEN
        DELETE FROM outbox WHERE seq = ANY (p_done);
    END IF;
    RETURN true;
END $$;

CREATE FUNCTION relay(
    p_now timestamptz, p_node text, p_done bigint[], p_aside bigint[], p_why text[], p_lease interval,
    p_scopes text[], p_jobs text[], p_limit integer
) RETURNS SETOF outbox LANGUAGE plpgsql AS $$
DECLARE
    v_skip bigint[];
BEGIN
    IF NOT _relay(p_now, p_node, p_done, p_aside, p_why, p_lease) THEN
        RETURN NEXT NULL::outbox;  -- a row of nothing: another node relays
        RETURN;
    END IF;
    IF cardinality(p_scopes) = 0 THEN
        RETURN QUERY SELECT * FROM outbox ORDER BY seq LIMIT p_limit;
        RETURN;
    END IF;
    v_skip := ARRAY(SELECT j.lane FROM unnest(p_scopes, p_jobs) i(scope, job)
                    JOIN job j ON j.scope_id = i.scope AND j.job_id = i.job);
    RETURN QUERY SELECT * FROM outbox WHERE lane <> ALL (v_skip) ORDER BY seq LIMIT p_limit;
END $$;

CREATE FUNCTION hold_lock(p_now timestamptz, p_name text, p_node text, p_ttl interval)
RETURNS TABLE (token bigint, until timestamptz) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_at timestamptz;
    k named_lock;
BEGIN
    INSERT INTO named_lock VALUES (p_name, 0, NULL, '-infinity') ON CONFLICT DO NOTHING;
    SELECT * INTO k FROM named_lock WHERE name = p_name FOR UPDATE;
    v_at := coalesce(p_now, clock_timestamp());
    IF k.until > v_at AND k.holder IS DISTINCT FROM p_node THEN
        RETURN;
    END IF;
    RETURN QUERY UPDATE named_lock SET
        token = CASE WHEN k.holder = p_node THEN k.token ELSE k.token + 1 END,
        until = CASE WHEN p_ttl IS NULL THEN v_at ELSE v_at + p_ttl END,
        holder = CASE WHEN p_ttl IS NOT NULL THEN p_node END
    WHERE name = p_name RETURNING named_lock.token, named_lock.until;
END $$;

CREATE FUNCTION set_bookmark(p_name text, p_expected bigint, p_value bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF p_value IS NOT NULL THEN
        IF p_expected = 0 THEN
            INSERT INTO bookmark VALUES (p_name, 0) ON CONFLICT DO NOTHING;
        END IF;
        UPDATE bookmark SET value = p_value WHERE name = p_name AND value = p_expected;
    END IF;
    RETURN coalesce((SELECT value FROM bookmark WHERE name = p_name), 0);
END $$;

-- Every function called from outside brings its settings along, so that they hold behind a pooler too: its own schema
-- and UTC (an interval of a day is 24 hours there). The ones for batches also keep to plans by index: the planner takes
-- a batch for ten rows, and a lane table that is emptied and filled all day for a small one.
DO $$
DECLARE
    f record;
    v_setting text;
BEGIN
    FOR f IN
        SELECT p.oid::regprocedure AS signature, p.proname IN (
            'exchange', 'renew', 'hand_back', 'enqueue', 'enqueue_keyed', 'arrive', 'notify_jobs', 'fire', 'relay',
            'history_page', 'letter_page', 'one_run') AS is_batch
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = current_schema() AND p.proname NOT LIKE '\_%'
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I', f.signature, current_schema());
        EXECUTE format('ALTER FUNCTION %s SET timezone = ''UTC''', f.signature);
        IF f.is_batch THEN
            EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan', f.signature);
            FOREACH v_setting IN ARRAY ARRAY['enable_seqscan', 'enable_bitmapscan', 'enable_sort', 'enable_hashjoin',
                'enable_mergejoin', 'jit'] LOOP
                EXECUTE format('ALTER FUNCTION %s SET %s = off', f.signature, v_setting);
            END LOOP;
        END IF;
    END LOOP;
END $$;
