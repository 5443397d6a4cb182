-- Letters, retention, the outbox, locks and settings; then the server settings that all functions run under.

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

-- Delete at most p_limit entries. One node at a time does it; locked lanes are left for the next time.
CREATE FUNCTION prune(p_now timestamptz, p_keep integer, p_age interval, p_letters interval, p_limit integer)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz := coalesce(p_now, clock_timestamp());
    v_left integer := p_limit;
BEGIN
    INSERT INTO setting VALUES ('_pruned_lanes', 0), ('_pruned_decisions', 0) ON CONFLICT DO NOTHING;
    PERFORM FROM setting WHERE name = '_pruned_lanes' FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    v_left := v_left - _forget(ARRAY(
        SELECT run_id FROM history WHERE ended_at < v_at - p_age ORDER BY ended_at LIMIT v_left));
    IF p_letters IS NOT NULL THEN
        v_left := v_left - _prune_letters(v_at - p_letters, v_left);
    END IF;
    v_left := v_left - _prune_keys(v_at, v_left);
    IF v_left > 0 THEN  -- these read much to find little: only when nothing else is left
        v_left := v_left - _prune_crowded(p_keep, v_left);
    END IF;
    IF v_left > 0 THEN
        v_left := v_left - _prune_decisions(v_left);
    END IF;
    IF v_left = 0 THEN
        RETURN p_limit;  -- the next call goes on
    END IF;
    PERFORM _prune_definitions(v_at, p_limit);
    PERFORM _prune_bands();
    PERFORM _prune_nodes(v_at);
    DELETE FROM hand WHERE ctid = ANY (ARRAY(  -- without waiting for a node that claims just now
        SELECT ctid FROM hand WHERE NOT EXISTS (SELECT FROM node WHERE node.node_id = hand.node_id)
        FOR UPDATE SKIP LOCKED));
    RETURN p_limit - v_left;
END $$;

-- Nodes not seen for a day, once a live node has been in contact for their lease (`rota.backend.liveness`).
CREATE FUNCTION _prune_nodes(p_at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM node WHERE node_id = ANY (ARRAY(
        SELECT node_id FROM node
        WHERE seen_at + lease <= p_at - interval '1 day' AND lease <= p_at - (
            SELECT min(_steady_since(j, p_at)) FROM node j WHERE j.seen_at + j.lease > p_at)
        FOR UPDATE SKIP LOCKED));
END $$;

-- Delete finished runs whose lanes are not locked; returns how many.
CREATE FUNCTION _forget(p_runs uuid[]) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_lanes bigint[];
    v_counts integer[];
    v_gone integer;
BEGIN
    v_lanes := ARRAY(SELECT id FROM lane WHERE id = ANY (ARRAY(SELECT lane FROM history WHERE run_id = ANY (p_runs)))
                     FOR UPDATE SKIP LOCKED);
    WITH g AS (DELETE FROM history WHERE run_id = ANY (p_runs) AND lane = ANY (v_lanes) RETURNING lane),
    n AS (SELECT lane, count(*)::integer AS gone FROM g GROUP BY lane)
    SELECT array_agg(lane), array_agg(gone), coalesce(sum(gone), 0) INTO v_lanes, v_counts, v_gone FROM n;
    UPDATE lane l SET kept = l.kept - n.gone, oldest = coalesce((
        SELECT h.seq FROM history h WHERE h.lane = l.id AND h.seq >= l.oldest ORDER BY h.seq LIMIT 1), l.last_seq)
    FROM unnest(v_lanes, v_counts) n(lane, gone) WHERE l.id = n.lane;
    RETURN v_gone;
END $$;

-- Trim lanes that keep more than p_keep, because the limit was lowered or runs were cancelled. Each call looks at a part of
-- the lanes, the next call at the next part.
CREATE FUNCTION _prune_crowded(p_keep integer, p_limit integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_page CONSTANT integer := 50000;
    v_after bigint := (SELECT value FROM setting WHERE name = '_pruned_lanes');
    v_last bigint;
    v_seen integer;
    v_lanes bigint[];
    v_gone integer;
BEGIN
    SELECT max(id), count(*), array_agg(id) FILTER (WHERE kept > p_keep) INTO v_last, v_seen, v_lanes
    FROM (SELECT id, kept FROM lane WHERE id > v_after ORDER BY id LIMIT v_page) x;
    v_gone := _forget(ARRAY(
        SELECT x.run_id FROM unnest(v_lanes) c(id)
        CROSS JOIN LATERAL (SELECT kept, oldest FROM lane WHERE id = c.id OFFSET 0) l
        CROSS JOIN LATERAL (
            SELECT run_id FROM history WHERE lane = c.id AND seq >= l.oldest ORDER BY seq
            LIMIT greatest(l.kept - p_keep, 0)) x
        LIMIT p_limit));
    IF v_gone < p_limit THEN
        UPDATE setting SET value = CASE WHEN v_seen < v_page THEN 0 ELSE v_last END WHERE name = '_pruned_lanes';
    END IF;
    RETURN v_gone;
END $$;

-- Letters that ended before p_before become history.
CREATE FUNCTION _prune_letters(p_before timestamptz, p_limit integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    e record;
    v_gone integer := 0;
BEGIN
    FOR e IN SELECT run_id, lane FROM letter WHERE ended_at < p_before ORDER BY ended_at LIMIT p_limit LOOP
        PERFORM FROM lane WHERE id = e.lane FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM _unletter(e.run_id, NULL, NULL);
            v_gone := v_gone + 1;
        END IF;
    END LOOP;
    RETURN v_gone;
END $$;

CREATE FUNCTION _prune_keys(p_at timestamptz, p_limit integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_gone integer;
BEGIN
    DELETE FROM held_key WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM held_key WHERE until <= p_at ORDER BY until LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    RETURN v_gone;
END $$;

-- Keep the newest 1000 decisions of a job. Each call looks at a part of the jobs.
CREATE FUNCTION _prune_decisions(p_limit integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_lane bigint := (SELECT value FROM setting WHERE name = '_pruned_decisions');
    v_some integer;
    v_gone integer := 0;
BEGIN
    FOR i IN 1 .. 1000 LOOP
        v_lane := (SELECT lane FROM decision WHERE lane > v_lane ORDER BY lane, id LIMIT 1);
        EXIT WHEN v_lane IS NULL;
        DELETE FROM decision WHERE id = ANY (ARRAY(
            SELECT id FROM decision WHERE lane = v_lane ORDER BY lane DESC, id DESC OFFSET 1000 LIMIT p_limit - v_gone));
        GET DIAGNOSTICS v_some = ROW_COUNT;
        v_gone := v_gone + v_some;
        IF v_gone >= p_limit THEN
            v_lane := v_lane - 1;  -- this job may have more
            EXIT;
        END IF;
    END LOOP;
    UPDATE setting SET value = coalesce(v_lane, 0) WHERE name = '_pruned_decisions';
    RETURN v_gone;
END $$;

-- Delete definitions that no run and no fact refers to. All are checked in one snapshot, because one step may move a
-- reference from a run to a fact. Those still in use are checked again in an hour.
CREATE FUNCTION _prune_definitions(p_at timestamptz, p_limit integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_old bigint[] := ARRAY(
        SELECT id FROM definition WHERE retired_at < p_at - interval '1 hour'
        ORDER BY retired_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
BEGIN
    IF cardinality(v_old) = 0 THEN
        RETURN;
    END IF;
    DELETE FROM definition d WHERE d.id = ANY (v_old)
        AND NOT EXISTS (
            SELECT FROM lane l JOIN job j ON j.lane = l.id
            WHERE l.id = d.lane AND l.definition = d.id AND (j.definition IS NOT NULL OR l.unfinished > 0))
        AND NOT EXISTS (SELECT FROM run r WHERE r.lane = d.lane AND r.start_at IS NULL AND r.definition = d.id)
        AND NOT EXISTS (SELECT FROM run r WHERE r.lane = d.lane AND r.start_at IS NOT NULL AND r.definition = d.id)
        AND NOT EXISTS (SELECT FROM arrival a WHERE a.lane = d.lane)
        AND d.id <> ALL (ARRAY(SELECT unnest(definition) FROM outbox WHERE definition && v_old
                               UNION ALL SELECT definition FROM set_aside WHERE definition = ANY (v_old)));
    UPDATE definition SET retired_at = p_at WHERE id = ANY (v_old);
END $$;

CREATE FUNCTION _is_in_use(p_band band) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN  -- a function of its own, so that the planner does not compare all bands with all definitions
    PERFORM FROM definition
    WHERE handler = p_band.handler AND queue = p_band.queue AND priority = p_band.priority LIMIT 1;
    RETURN FOUND;
END $$;

-- Delete bands that no definition can put a lane into. `_band` locks a band in use: it is skipped, or found in use by the
-- second check.
CREATE FUNCTION _prune_bands() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_bands integer[] := ARRAY(SELECT id FROM band WHERE NOT _is_in_use(band) FOR UPDATE SKIP LOCKED);
BEGIN
    DELETE FROM band WHERE id = ANY (v_bands) AND NOT _is_in_use(band);
END $$;

-- True if this node relays to the audience, which it may for p_lease from now on. Its own lease is written again when half
-- of it has passed, not with every page. A lease that ends later than p_longest from now was taken before the clock was
-- set back; it counts as ended (rota.backend.is_relayed).
CREATE FUNCTION _relays(p_audience text, p_now timestamptz, p_node text, p_lease interval, p_longest interval)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz;
    k named_lock;
BEGIN
    SELECT * INTO k FROM named_lock WHERE name = '_relay.' || p_audience;
    v_at := coalesce(p_now, clock_timestamp());
    IF k.holder = p_node AND k.until > v_at + p_lease / 2 AND k.until <= v_at + p_lease THEN
        RETURN true;
    END IF;
    IF k.holder <> p_node AND k.until > v_at AND k.until <= v_at + p_longest THEN
        RETURN false;
    END IF;
    INSERT INTO named_lock VALUES ('_relay.' || p_audience, 0, NULL, '-infinity') ON CONFLICT DO NOTHING;
    SELECT * INTO k FROM named_lock WHERE name = '_relay.' || p_audience FOR UPDATE;
    v_at := coalesce(p_now, clock_timestamp());  -- read again: another node may have taken the lock, at a later time
    UPDATE named_lock SET token = token + (holder IS DISTINCT FROM p_node)::integer, holder = p_node,
        until = v_at + p_lease
    WHERE name = k.name AND (holder IS NULL OR holder = p_node OR until <= v_at OR until > v_at + p_longest);
    RETURN FOUND;
END $$;

-- Forget single facts of rows that have others still to be told.
CREATE FUNCTION _forget_told(p_audience text, p_rows bigint[], p_places integer[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE outbox SET told = ARRAY(
        SELECT unnest(told) UNION SELECT i.place FROM unnest(p_rows, p_places) i(id, place) WHERE i.id = outbox.id)
    WHERE audience = p_audience AND id = ANY (p_rows);
    DELETE FROM outbox WHERE audience = p_audience AND id = ANY (p_rows) AND cardinality(told) = size;
END $$;

-- Forget the facts that were told (whole rows, then single facts) and set aside those that failed; then return the next
-- rows. Rows that the caller wrote itself come without their arrays (known by number and time: a store restored from a
-- backup may give a number again).
CREATE FUNCTION relay(
    p_audience text, p_now timestamptz, p_node text, p_lease interval, p_longest interval, p_done bigint[],
    p_rows bigint[], p_places integer[], f_rows bigint[], f_places integer[], f_why text[], p_scopes text[],
    p_jobs text[], p_known bigint[], p_times timestamptz[], p_limit integer
) RETURNS SETOF outbox LANGUAGE plpgsql AS $$
DECLARE
    v_skip bigint[];
    v_given integer := 0;
    v_told bigint;
    o outbox;
BEGIN
    IF p_audience = 'admins' AND NOT EXISTS (SELECT FROM outbox WHERE audience = p_audience) THEN
        RETURN;  -- mostly there are no letters: no lock is written for them
    END IF;
    IF NOT _relays(p_audience, p_now, p_node, p_lease, p_longest) THEN
        RETURN NEXT NULL::outbox;  -- an empty row: another node relays
        RETURN;
    END IF;
    WITH d AS (DELETE FROM outbox WHERE audience = p_audience AND id = ANY (p_done) RETURNING size)
    SELECT sum(size) INTO v_told FROM d;
    IF v_told > 100 THEN
        -- If a crash of the server loses this, the facts are told again, which is allowed. With few facts it does not
        -- pay: the delayed write would keep the disk busy just when the next trigger comes.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF cardinality(f_rows) > 0 THEN
        INSERT INTO set_aside
        SELECT b.id, i.place, b.at, b.kind, b.lane[i.place], b.definition[i.place], b.run_id[i.place],
            b.attempt[i.place], b.error[i.place], i.why
        FROM unnest(f_rows, f_places, f_why) i(id, place, why)
        CROSS JOIN LATERAL (
            SELECT * FROM outbox WHERE audience = p_audience AND id = i.id AND i.place <> ALL (told) OFFSET 0) b
        ON CONFLICT DO NOTHING;
        PERFORM _forget_told(p_audience, f_rows, f_places);
    END IF;
    IF cardinality(p_rows) > 0 THEN
        PERFORM _forget_told(p_audience, p_rows, p_places);
    END IF;
    v_skip := ARRAY(SELECT j.lane FROM unnest(p_scopes, p_jobs) i(scope, job)
                    CROSS JOIN LATERAL (SELECT lane FROM job WHERE scope_id = i.scope AND job_id = i.job OFFSET 0) j);
    FOR o IN
        SELECT * FROM outbox WHERE audience = p_audience AND (cardinality(v_skip) = 0 OR EXISTS (
            SELECT FROM unnest(lane) WITH ORDINALITY l(id, place)
            WHERE l.place <> ALL (told) AND l.id <> ALL (v_skip))) ORDER BY id
    LOOP
        v_given := v_given + o.size;
        EXIT WHEN v_given > p_limit AND v_given > o.size;
        IF o.at = p_times[array_position(p_known, o.id)] THEN
            o := ROW(o.id, o.audience, o.at, o.revision, o.kind, o.told, o.size,
                NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
        END IF;
        RETURN NEXT o;
        EXIT WHEN v_given >= p_limit;
    END LOOP;
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
    IF k.until > v_at AND k.holder <> p_node THEN  -- a released lock has no holder
        RETURN;
    END IF;
    RETURN QUERY UPDATE named_lock SET
        token = CASE WHEN k.holder = p_node THEN k.token ELSE k.token + 1 END,
        until = CASE WHEN p_ttl IS NULL THEN v_at ELSE v_at + p_ttl END,
        holder = CASE WHEN p_ttl IS NOT NULL THEN p_node END
    WHERE name = p_name RETURNING named_lock.token, named_lock.until;
END $$;

-- The number stored under a name, 0 if there is none; with a value it is set if it still is as expected.
CREATE FUNCTION set_number(p_name text, p_expected bigint, p_value bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF p_value IS NOT NULL THEN
        IF p_expected = 0 THEN
            INSERT INTO setting VALUES (p_name, 0) ON CONFLICT DO NOTHING;
        END IF;
        UPDATE setting SET value = p_value WHERE name = p_name AND value = p_expected;
    END IF;
    RETURN coalesce((SELECT value FROM setting WHERE name = p_name), 0);
END $$;

-- Let the session plan the statements of triggers, claims and settlements before a call needs them: run all of them for a
-- job under a new name, then roll everything back.
CREATE FUNCTION warm_up() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_name text := '_warm_up ' || gen_random_uuid();
    v_names CONSTANT text[] := ARRAY[v_name];
    v_claimed exchanged;
    v_carried carried;
BEGIN
    PERFORM register(NULL, NULL, v_name, v_name, 0, gen_random_uuid(), true, '', '', v_name, v_name, 0, NULL, NULL, NULL,
        NULL, NULL, '[]', NULL, NULL, NULL);
    FOR n IN 1 .. 5 BY 4 LOOP  -- one by one, and many in one statement
        PERFORM enqueue(NULL, NULL, v_names, array_fill(v_name, ARRAY[n]),
            ARRAY(SELECT gen_random_uuid() FROM generate_series(1, n)), '{manual}', '{10}', '{}', '{}', '{}', '{}', '{}',
            '{}', '{}');
    END LOOP;
    v_claimed := _claim(NULL, v_name, 0, 1, NULL, v_names, 1, '1 minute', v_names, '{1}');
    v_carried := _carry_on(NULL, v_claimed.runs, v_claimed.tokens, v_names, '{}', '{}', NULL, v_name, 0, 2, v_names,
        '1 minute');
    v_claimed := v_carried.claimed;
    PERFORM _settle(clock_timestamp(), NULL, v_claimed.runs, v_claimed.tokens, v_names, '{}', '{}', '{}', '{}', '{}', '{}',
        '{}', '{}', NULL);
    PERFORM exchange(NULL, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', NULL, v_name, 0, 0, v_names,
        0, '1 minute', v_names, '{0}');
    ASSERT (SELECT count(*) FROM history WHERE node_id = v_name) = 2, 'the warm-up did not end its two runs';
    RAISE EXCEPTION USING ERRCODE = 'RH000';
EXCEPTION
    WHEN SQLSTATE 'RH000' THEN NULL;
END $$;

-- Every function finds the tables of this schema, never a temporary table of the caller: pg_temp is searched last. Bodies
-- written as BEGIN ATOMIC or RETURN were bound to their tables when they were made, and can still be inlined.
-- Functions called from outside also carry UTC (an interval of a day is 24 hours there), so that it holds behind a pooler.
-- Those for batches use index plans only: the planner estimates a batch at ten rows, and takes the lane table, which is
-- emptied and filled all day, for a small one.
DO $$
DECLARE
    f record;
    v_setting text;
BEGIN
    FOR f IN
        SELECT p.oid::regprocedure AS signature, p.proname NOT LIKE '\_%' AS is_public, p.proname IN (
            'exchange', 'renew', 'hand_back', 'enqueue', 'arrive', 'heard', 'listening', 'notify_jobs', 'fire',
            'relay', 'due_page', 'job_page', 'history_page', 'letter_page', 'one_run', 'cancel', 'prune', 'warm_up'
            ) AS is_batch
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = current_schema() AND p.prosqlbody IS NULL
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', f.signature, current_schema());
        IF f.is_public THEN
            EXECUTE format('ALTER FUNCTION %s SET timezone = ''UTC''', f.signature);
        END IF;
        IF f.is_batch THEN
            EXECUTE format('ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan', f.signature);
            FOREACH v_setting IN ARRAY ARRAY['enable_seqscan', 'enable_bitmapscan', 'enable_sort', 'enable_hashjoin',
                'enable_mergejoin', 'jit'] LOOP
                EXECUTE format('ALTER FUNCTION %s SET %s = off', f.signature, v_setting);
            END LOOP;
        END IF;
    END LOOP;
END $$;
