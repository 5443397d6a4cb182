-- Claiming and settling. One call is one exchange of a node: settle the finished runs, then claim. A claim locks lanes in
-- one statement and reads their runs in the next: in READ COMMITTED each statement has its own snapshot, so it sees
-- everything that was committed before the lock was granted. A settlement does both in one statement, because it reads
-- only the run that the lease is on (mixed lanes are refreshed afterwards). Lanes are locked in order of their number,
-- before any other row that calls share.

-- True if a run is to be retried and may be: its job was not removed, and it was not asked to stop.
CREATE FUNCTION _goes_on(p_state text, p_removed boolean, p_stop text) RETURNS boolean LANGUAGE sql IMMUTABLE
    RETURN p_state = 'retrying' AND NOT p_removed AND p_stop IS NULL;

-- A row of an answer. what: 0 the store's time and when to look again, 1 claims, 2 a lease that has ended, 3 settlements
-- that were refused (numbers), 4 successes that were stored (numbers, in the order of their row of the outbox). Claims have
-- an array per column, in the order of their row of the outbox. An array is null if no claim has a value for it or all
-- have the usual one (first attempts, no depth); `queues` has one entry if all claims are of one queue. Left out is what
-- the node knows: its name, the end of its leases, the definition if it had the job before.
CREATE TYPE exchanged AS (
    what integer, at timestamptz, next_at timestamptz, outbox bigint, numbers integer[], runs uuid[],
    definitions bigint[], payloads bytea[], causes text[], attempts integer[], tokens bigint[], firsts timestamptz[],
    dues timestamptz[], events text[], depths integer[], queues text[], bodies text[], body_payloads bytea[],
    is_missing boolean, node_id text, lease_until timestamptz
);

-- Locked lanes that may carry on: lane numbers, row addresses, positions in the batch, bands (as positions in a list); and
-- of their leased runs the row addresses, positions in the lane and start times.
CREATE TYPE locked AS (
    lanes bigint[], lane_rows tid[], numbers integer[], bands integer[], run_rows tid[], seqs bigint[],
    began timestamptz[]
);

-- The answers for lanes that carried on; empty if the claim is a repeat.
CREATE TYPE carried AS (is_repeat boolean, settled exchanged, claimed exchanged);

CREATE FUNCTION exchange(
    p_now timestamptz,
    s_runs uuid[], s_tokens bigint[], s_nodes text[], s_states text[], s_outcomes text[], s_facts integer[],
    s_errors text[], s_reasons text[], s_records bigint[], s_waits interval[], s_expired boolean[], p_keep integer,
    c_node text, c_hand integer, c_number bigint, c_handlers text[], c_limit integer, c_lease interval, c_queues text[],
    c_slots integer[]
) RETURNS SETOF exchanged LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz := coalesce(p_now, clock_timestamp());
    v_carried carried;
    v_is_done boolean := cardinality(s_runs) = 0;
    v_left integer := c_limit;
    v_row exchanged;
BEGIN
    IF NOT v_is_done AND c_node IS NOT NULL THEN
        IF _may_carry_on(v_at, s_runs, c_node, c_handlers, c_limit, c_queues) THEN
            v_carried := _carry_on(p_now, s_runs, s_tokens, s_nodes, s_facts, s_records, p_keep, c_node, c_hand,
                c_number, c_handlers, c_lease);
            v_row := v_carried.claimed;
            IF v_row.runs IS NOT NULL THEN
                RETURN NEXT v_row;
                v_left := c_limit - cardinality(v_row.runs);
                v_row := v_carried.settled;
                IF v_row.outbox IS NOT NULL THEN
                    RETURN NEXT v_row;
                END IF;
                v_is_done := cardinality(v_row.numbers) = cardinality(s_runs);
            END IF;
        END IF;
    END IF;
    IF NOT v_is_done THEN
        RETURN QUERY SELECT * FROM _settle(coalesce(p_now, clock_timestamp()), (v_carried.settled).numbers, s_runs,
            s_tokens, s_nodes, s_states, s_outcomes, s_facts, s_errors, s_reasons, s_records, s_waits, s_expired,
            p_keep);
    END IF;
    IF c_node IS NULL THEN
        RETURN;
    END IF;
    v_at := coalesce(p_now, clock_timestamp());  -- runs that are due by then are handed over, up to the limit
    IF v_left > 0 OR v_carried.is_repeat IS NOT false THEN
        IF c_limit > 0 AND EXISTS (SELECT FROM arrival) THEN
            PERFORM _drain(p_now);
        END IF;
        RETURN QUERY SELECT * FROM _claim(p_now, c_node, c_hand, c_number, v_carried.is_repeat, c_handlers, v_left,
            c_lease, c_queues, c_slots);
    END IF;
    v_row := NULL;
    v_row.what := 0;
    v_row.at := coalesce(p_now, clock_timestamp());
    v_row.next_at := (SELECT ready_at FROM lane WHERE place = 0 AND ready_at IS NOT NULL ORDER BY ready_at LIMIT 1);
    IF v_row.next_at <= v_row.at THEN
        RETURN QUERY SELECT * FROM _leases(2, c_handlers, v_row.at) l WHERE l.lease_until <= v_row.at LIMIT 100;
        v_row.next_at := least(
            (SELECT ready_at FROM lane WHERE place = 0 AND ready_at > v_row.at ORDER BY ready_at LIMIT 1),
            (SELECT min(lease_until) FROM lane WHERE place = 0 AND ready_at <= v_row.at AND lease_until > v_row.at));
    END IF;
    v_row.next_at := least(v_row.next_at, (SELECT min(x.ready_at) FROM band CROSS JOIN LATERAL (
        SELECT ready_at FROM lane WHERE place = band.id AND ready_at > v_at ORDER BY ready_at LIMIT 1) x),
        (SELECT turns_at FROM lane WHERE turns_at > v_at ORDER BY turns_at LIMIT 1));
    RETURN NEXT v_row;
END $$;

-- Since when a node has been in contact without a gap. Nodes renew every third of a lease, so a pause of half a lease is a
-- gap. It starts again if the clock was set back. (`rota.backend.liveness` says the same.)
CREATE FUNCTION _steady_since(p_node node, p_at timestamptz) RETURNS timestamptz LANGUAGE sql STABLE
    RETURN CASE WHEN p_node.steady_since <= p_at AND p_node.seen_at + p_node.lease / 2 > p_at
                THEN p_node.steady_since ELSE p_at END;

-- Nodes that may be alive, as far as the node p_judge can know: those seen within their lease (or the judge's, if longer),
-- and the others until the judge itself has been in contact for their lease. After an outage all look dead, and come back
-- one by one (RETRY-4).
CREATE FUNCTION _perhaps_alive(p_judge text, p_at timestamptz) RETURNS SETOF node LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT * FROM node WHERE seen_at + lease > p_at
        OR seen_at + (SELECT j.lease FROM node j WHERE j.node_id = p_judge) > p_at OR lease > p_at - coalesce(
        (SELECT _steady_since(j, p_at) FROM node j WHERE j.node_id = p_judge), p_at);
END;

-- Bands with lanes that a node with these handlers may claim now.
CREATE FUNCTION _waiting(p_at timestamptz, p_node text, p_handlers text[], p_queues text[])
RETURNS TABLE (id integer, priority integer, queue text, is_missing boolean, oldest timestamptz) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT band.id, priority, queue, handler <> ALL (p_handlers), oldest.ready_at FROM band
    CROSS JOIN LATERAL (
        SELECT ready_at FROM lane WHERE place = band.id AND ready_at <= p_at ORDER BY ready_at LIMIT 1) oldest
    WHERE (p_queues IS NULL OR queue = ANY (p_queues)) AND (handler = ANY (p_handlers) OR NOT EXISTS (
        SELECT FROM _perhaps_alive(p_node, p_at) n WHERE band.handler = ANY (n.handlers)));
END;

-- True if settled lanes may carry on with their next runs: no other lane waits for a claim, the claim may return as many
-- runs as are settled, and at least one of the lanes has another run.
CREATE FUNCTION _may_carry_on(
    p_at timestamptz, s_runs uuid[], c_node text, c_handlers text[], c_limit integer, c_queues text[]
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN c_node IS NOT NULL AND c_queues IS NULL AND cardinality(s_runs) BETWEEN 1 AND c_limit
        AND NOT EXISTS (SELECT FROM arrival) AND NOT EXISTS (SELECT FROM _waiting(p_at, c_node, c_handlers, NULL))
        AND EXISTS (
            SELECT FROM unnest(s_runs) s(run_id)
            CROSS JOIN LATERAL (SELECT lane FROM run WHERE run_id = s.run_id OFFSET 0) r
            CROSS JOIN LATERAL (SELECT FROM lane WHERE id = r.lane AND unfinished > 1 AND NOT is_mixed OFFSET 0) l);
END $$;

CREATE FUNCTION _locked_lanes(
    s_runs uuid[], s_tokens bigint[], s_nodes text[], s_facts integer[], c_node text, p_bands integer[]
) RETURNS locked LANGUAGE plpgsql AS $$
DECLARE
    v_locked locked;
BEGIN
    SELECT array_agg(x.lane), array_agg(x.lane_row), array_agg(x.number), array_agg(x.band), array_agg(x.run_row),
        array_agg(x.seq), array_agg(x.started_at)
    INTO v_locked FROM (
        SELECT s.*, l.* FROM (
            SELECT r.lane, r.run_row, s.number::integer FROM unnest(s_runs) WITH ORDINALITY s(run_id, number)
            CROSS JOIN LATERAL (SELECT ctid AS run_row, lane FROM run WHERE run_id = s.run_id OFFSET 0) r
            ORDER BY r.lane LIMIT cardinality(s_runs)
        ) s CROSS JOIN LATERAL (
            SELECT ctid AS lane_row, seq, started_at, array_position(p_bands, band) AS band,
                leased AND run_id = s_runs[s.number] AND token = s_tokens[s.number] AND node_id = c_node
                AND attempt = 1 AND stop IS NULL AND is_open AND NOT is_mixed AND NOT removed
                AND coalesce(s_nodes[s.number], s_nodes[1]) = c_node AND coalesce(s_facts[s.number], 1) = 1 AS goes_on
            FROM lane WHERE id = s.lane FOR UPDATE OFFSET 0) l  -- goes_on is judged after the lock, so that all lanes are locked
    ) x
    WHERE x.goes_on AND x.band IS NOT NULL;
    RETURN v_locked;
END $$;

-- Settle successes of first attempts and lease the next run of the same lane: one update of the lane instead of two, and
-- none of its index entries while ready_at may stay (it may be a sixteenth of the lease early). Other settlements and
-- lanes are left to `_settle` and `_claim`.
CREATE FUNCTION _carry_on(
    p_now timestamptz, s_runs uuid[], s_tokens bigint[], s_nodes text[], s_facts integer[], s_records bigint[],
    p_keep integer, c_node text, c_hand integer, c_number bigint, c_handlers text[], c_lease interval
) RETURNS carried LANGUAGE plpgsql AS $$
DECLARE
    v_tells boolean := _records_facts();
    v_bands integer[];
    v_handlers text[];
    v_queues text[];
    v_locked locked;
    v_at timestamptz;
    v_until timestamptz;
    v_soon timestamptz;
    v_crowded bigint[];
    v_oldest bigint[];
    v_carried carried;
    v_settled exchanged;
    v_claimed exchanged;
BEGIN
    SELECT array_agg(id), array_agg(handler), array_agg(queue) INTO v_bands, v_handlers, v_queues
    FROM band WHERE handler = ANY (c_handlers);
    v_locked := _locked_lanes(s_runs, s_tokens, s_nodes, s_facts, c_node, v_bands);
    v_at := coalesce(p_now, clock_timestamp());
    v_until := v_at + c_lease;
    v_soon := v_until - c_lease / 16;
    v_carried.is_repeat := c_number <> 0 AND _is_repeat(c_node, c_hand, c_number);
    IF v_carried.is_repeat THEN
        RETURN v_carried;
    END IF;
    WITH d AS (
        DELETE FROM run USING (
            SELECT p.*, n.*
            FROM unnest(v_locked.lanes, v_locked.lane_rows, v_locked.numbers, v_locked.bands, v_locked.run_rows,
                v_locked.seqs, v_locked.began) p(lane, lane_row, number, band, run_row, seq, began)
            CROSS JOIN LATERAL (
                -- Mostly it is the very next one: for a range, the index scan reads all entries of a page.
                (SELECT run_id AS c_run, seq AS c_seq, payload AS c_payload, cause AS c_cause, due AS c_due,
                    event AS c_event, depth AS c_depth
                 FROM run WHERE lane = p.lane AND start_at IS NULL AND seq = p.seq + 1)
                UNION ALL
                (SELECT run_id, seq, payload, cause, due, event, depth
                 FROM run WHERE lane = p.lane AND start_at IS NULL AND seq > p.seq + 1 ORDER BY seq LIMIT 1)
                LIMIT 1) n
        ) s
        WHERE run.ctid = s.run_row
        RETURNING s.*, run_id, definition, queued_at, due, covers_from, covers_to, replay_of, missed_count, depth,
            cause, event_id
    ), u AS (
        UPDATE lane SET
            settled_token = token, settled_by = c_node, last_success_at = v_at, unfinished = unfinished - 1,
            was_full = coalesce(kept >= p_keep, false),
            kept = CASE WHEN p_keep IS NULL THEN kept + 1 ELSE least(kept + 1, greatest(p_keep, kept)) END,
            oldest = least(oldest, d.seq), token = token + 1, lease_until = v_until, run_id = d.c_run, seq = d.c_seq,
            claim_number = c_number,
            ready_at = CASE WHEN ready_at BETWEEN v_soon AND v_until THEN ready_at ELSE v_until END,
            started_at = v_at, first_started_at = v_at, last_attempt_at = v_at
        FROM d WHERE lane.ctid = d.lane_row
        RETURNING d.*, token AS c_token, was_full, oldest
    ), h AS (
        INSERT INTO history (run_id, lane, seq, queued_at, started_at, first_started_at, ended_at, due, covers_from,
            covers_to, replay_of, token, records, missed_count, attempt, state, cause, handler, event_id, outcome,
            node_id)
        SELECT u.run_id, u.lane, u.seq, u.queued_at, u.began, u.began, v_at, u.due, u.covers_from, u.covers_to,
            u.replay_of, u.c_token - 1, s_records[u.number], u.missed_count, 1, 'succeeded', u.cause,
            v_handlers[u.band], u.event_id, 'succeeded', c_node
        FROM u
    ), a AS MATERIALIZED (
        SELECT array_agg(u.number) AS numbers, array_agg(u.lane) AS lane, array_agg(u.definition) AS definition,
            array_agg(1) AS attempt, array_agg(u.run_id) AS run_id, array_agg(u.began) AS began,
            array_agg(u.depth + 1) AS depth, array_agg(u.cause) AS cause,
            CASE WHEN count(u.due) > 0 THEN array_agg(u.due) END AS due,
            CASE WHEN count(s_records[u.number]) > 0 THEN array_agg(s_records[u.number]) END AS records,
            array_agg(u.c_run) AS c_run, CASE WHEN max(u.c_depth) > 0 THEN array_agg(u.c_depth) END AS c_depth,
            array_agg(u.c_depth + 1) AS c_next_depth, array_agg(u.c_cause) AS c_cause,
            CASE WHEN count(u.c_due) > 0 THEN array_agg(u.c_due) END AS c_due,
            CASE WHEN count(u.c_payload) > 0 THEN array_agg(u.c_payload) END AS c_payload,
            CASE WHEN count(u.c_event) > 0 THEN array_agg(u.c_event) END AS c_event, array_agg(u.c_token) AS c_token,
            CASE WHEN min(u.band) = max(u.band) THEN ARRAY[v_queues[min(u.band)]]
                 ELSE array_agg(v_queues[u.band]) END AS queues,
            array_agg(u.lane) FILTER (WHERE u.was_full) AS crowded,
            array_agg(u.oldest) FILTER (WHERE u.was_full) AS oldest
        FROM u HAVING count(*) > 0
    ), o AS (
        INSERT INTO outbox (lane, definition, at, run_id, due, started_at, records, attempt, depth, kind, cause)
        SELECT a.lane, a.definition, v_at, f.*
        FROM a CROSS JOIN LATERAL (
            VALUES (a.run_id, a.due, a.began, a.records, a.attempt, a.depth, 'JobSucceeded', a.cause),
                (a.c_run, a.c_due, NULL, NULL, a.attempt, a.c_next_depth, 'JobTriggered', a.c_cause)) f
        WHERE v_tells
        RETURNING id, kind
    )
    SELECT a.crowded, a.oldest, 4, v_at, a.numbers, (SELECT id FROM o WHERE kind = 'JobSucceeded'), 1, v_at,
        (SELECT id FROM o WHERE kind = 'JobTriggered'), a.c_run, a.definition, a.c_payload, a.c_cause, a.c_token,
        a.c_due, a.c_event, a.c_depth, a.queues, false
    INTO v_crowded, v_oldest, v_settled.what, v_settled.at, v_settled.numbers, v_settled.outbox, v_claimed.what,
        v_claimed.at, v_claimed.outbox, v_claimed.runs, v_claimed.definitions, v_claimed.payloads, v_claimed.causes,
        v_claimed.tokens, v_claimed.dues, v_claimed.events, v_claimed.depths, v_claimed.queues, v_claimed.is_missing
    FROM a;
    PERFORM _forget_oldest(v_crowded, v_oldest);
    v_carried.settled := v_settled;
    v_carried.claimed := v_claimed;
    RETURN v_carried;
END $$;

-- Delete the oldest finished run of each of these lanes. Deleted runs stay in the index until the next vacuum, perhaps
-- millions of them: the search starts at `oldest`, which is moved on every 64 runs.
CREATE FUNCTION _forget_oldest(p_lanes bigint[], p_oldest bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_runs uuid[];
    v_lanes bigint[];
    v_seqs bigint[];
BEGIN
    IF p_lanes IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(x.run_id), array_agg(c.lane) FILTER (WHERE x.seq >= c.oldest + 64),
        array_agg(x.seq) FILTER (WHERE x.seq >= c.oldest + 64)
    INTO v_runs, v_lanes, v_seqs
    FROM unnest(p_lanes, p_oldest) c(lane, oldest) CROSS JOIN LATERAL (
        SELECT run_id, seq FROM history WHERE lane = c.lane AND seq >= c.oldest ORDER BY seq LIMIT 1) x;
    DELETE FROM history WHERE run_id = ANY (v_runs);
    IF v_lanes IS NOT NULL THEN
        UPDATE lane SET oldest = f.seq FROM unnest(v_lanes, v_seqs) f(lane, seq) WHERE id = f.lane;
    END IF;
END $$;

-- Rows 3 and 4 of an answer; `p_done` has the numbers that `_carry_on` has settled.
CREATE FUNCTION _settle(
    p_at timestamptz, p_done integer[], s_runs uuid[], s_tokens bigint[], s_nodes text[], s_states text[],
    s_outcomes text[], s_facts integer[], s_errors text[], s_reasons text[], s_records bigint[], s_waits interval[],
    s_expired boolean[], p_keep integer
) RETURNS SETOF exchanged LANGUAGE plpgsql AS $$
DECLARE
    v_tells boolean := _records_facts();
    v_crowded bigint[];
    v_oldest bigint[];
    v_mixed bigint[];
    v_wordy bigint[];
    v_dead uuid[];
    v_dead_definitions bigint[];
    v_stored integer[];
    v_settled exchanged;
    v_refused exchanged;
BEGIN
    WITH u AS (
        UPDATE lane SET
            leased = false,
            settled_token = s.token,
            settled_by = s.node,
            last_success_at = CASE WHEN s.state = 'succeeded' THEN p_at ELSE last_success_at END,
            last_failure_at = CASE WHEN s.state <> 'succeeded' AND s.outcome <> 'cancelled' THEN p_at
                                   ELSE last_failure_at END,
            run_id = CASE WHEN _goes_on(s.state, removed, stop) THEN lane.run_id END,
            retry_at = p_at + s.wait,
            error = CASE WHEN _goes_on(s.state, removed, stop) THEN s.error ELSE lane.error END,
            earlier = CASE WHEN _goes_on(s.state, removed, stop) THEN coalesce(earlier, '[]') || jsonb_build_array(
                jsonb_build_array(attempt, started_at, p_at, s.outcome, s.error, node_id, s.token)) ELSE earlier END,
            unfinished = unfinished - CASE WHEN _goes_on(s.state, removed, stop) THEN 0 ELSE 1 END,
            was_full = coalesce(kept >= p_keep, false),
            kept = CASE WHEN _goes_on(s.state, removed, stop) OR (s.state = 'dead' AND NOT removed) THEN kept
                        WHEN p_keep IS NULL THEN kept + 1
                        ELSE least(kept + 1, greatest(p_keep, kept)) END,
            oldest = least(oldest, s.seq),
            place = band,
            ready_at = CASE WHEN NOT is_open THEN NULL
                            WHEN _goes_on(s.state, removed, stop) THEN p_at + s.wait
                            WHEN unfinished > 1 THEN p_at END
        FROM (
            -- An empty column stands for the values of a success. Lanes are locked in order of their number.
            SELECT r.*, s.token, coalesce(s.node, s_nodes[1]) AS node, coalesce(s.state, 'succeeded') AS state,
                coalesce(s.outcome, 'succeeded') AS outcome, coalesce(s.facts, 1) AS facts, s.error, s.reason,
                s.records, s.wait, coalesce(s.expired, false) AS expired, s.number
            FROM unnest(s_runs, s_tokens, s_nodes, s_states, s_outcomes, s_facts, s_errors, s_reasons, s_records,
                s_waits, s_expired) WITH ORDINALITY
                AS s(run_id, token, node, state, outcome, facts, error, reason, records, wait, expired, number)
            CROSS JOIN LATERAL (
                SELECT ctid AS row, run_id, lane, seq, definition, queued_at, due, covers_from, covers_to, replay_of,
                    missed_count, depth, cause, event_id
                FROM run WHERE run_id = s.run_id OFFSET 0) r
            ORDER BY r.lane LIMIT cardinality(s_runs)  -- the LIMIT tells the planner that they are few
        ) s
        WHERE lane.id = s.lane AND leased AND lane.token = s.token AND lane.run_id = s.run_id
            AND (NOT s.expired OR lease_until <= p_at)
        RETURNING s.*, attempt, started_at, first_started_at, earlier, node_id, stop, stop_by, was_full, oldest,
            is_mixed, lane.run_id IS NOT NULL AS retries,
            (removed AND s.state IN ('retrying', 'dead')) OR (stop IS NOT NULL AND s.state = 'retrying') AS overruled
    ), d AS (
        DELETE FROM run WHERE ctid = ANY (ARRAY(SELECT u.row FROM u WHERE NOT u.retries))
    ), h AS (
        INSERT INTO history (run_id, lane, seq, queued_at, started_at, first_started_at, ended_at, due, covers_from,
            covers_to, replay_of, ended_by, token, records, missed_count, attempt, state, cause, handler, event_id,
            outcome, node_id, error, reason, earlier)
        SELECT u.run_id, u.lane, u.seq, u.queued_at, u.started_at, u.first_started_at, p_at, u.due, u.covers_from,
            u.covers_to, u.replay_of, u.stop_by, u.token, u.records, u.missed_count, u.attempt,
            CASE WHEN u.overruled THEN 'cancelled' ELSE u.state END, u.cause,
            coalesce((SELECT handler FROM definition WHERE id = u.definition), 'unknown'), u.event_id, u.outcome,
            u.node_id, u.error, CASE WHEN u.overruled THEN coalesce(u.stop, 'unscheduled') ELSE u.reason END, u.earlier
        FROM u WHERE NOT u.retries AND (u.overruled OR u.state <> 'dead')
    ), e AS (
        INSERT INTO letter (run_id, lane, seq, queued_at, started_at, first_started_at, ended_at, due, covers_from,
            covers_to, replay_of, ended_by, token, records, missed_count, attempt, state, cause, handler, event_id,
            outcome, node_id, error, reason, earlier, scope_id, depth, event, payload)
        SELECT u.run_id, u.lane, u.seq, u.queued_at, u.started_at, u.first_started_at, p_at, u.due, u.covers_from,
            u.covers_to, u.replay_of, u.stop_by, u.token, u.records, u.missed_count, u.attempt, u.state, u.cause,
            coalesce(f.handler, 'unknown'), u.event_id, u.outcome, u.node_id, u.error, u.reason, u.earlier,
            (SELECT scope_id FROM job WHERE lane = u.lane), u.depth, r.event, coalesce(r.payload, f.payload)
        FROM u LEFT JOIN LATERAL (SELECT handler, payload FROM definition WHERE id = u.definition OFFSET 0) f ON true
        CROSS JOIN LATERAL (SELECT event, payload FROM run WHERE run_id = u.run_id OFFSET 0) r  -- the snapshot from before the DELETE
        WHERE u.state = 'dead' AND NOT u.overruled
    ), g AS MATERIALIZED (  -- the numbers are in the order of the other arrays
        SELECT f.bit, f.kind, array_agg(u.number::integer) AS numbers, array_agg(u.lane) AS lane,
            array_agg(u.definition) AS definition, array_agg(u.run_id) AS run_id,
            CASE WHEN count(u.due) > 0 THEN array_agg(u.due) END AS due, array_agg(u.started_at) AS started_at,
            CASE WHEN bool_or(u.retries) THEN array_agg(CASE WHEN u.retries THEN p_at + u.wait END) END AS next_at,
            CASE WHEN count(u.records) > 0 THEN array_agg(u.records) END AS records, array_agg(u.attempt) AS attempt,
            array_agg(u.depth + 1) AS depth, array_agg(u.cause) AS cause,
            CASE WHEN count(u.error) > 0 THEN array_agg(u.error) END AS error
        FROM u CROSS JOIN (VALUES (1, 'JobSucceeded'), (2, 'JobFailed'), (4, 'JobDeadLettered')) f(bit, kind)
        WHERE u.facts & f.bit <> 0 AND NOT u.overruled AND v_tells
        GROUP BY f.bit, f.kind
    ), o AS (
        INSERT INTO outbox (lane, definition, at, run_id, due, started_at, next_attempt_at, records, attempt, depth,
            kind, cause, error)
        SELECT lane, definition, p_at, run_id, due, started_at, next_at, records, attempt, depth, kind, cause, error
        FROM g ORDER BY bit
        RETURNING id, kind
    )
    SELECT (SELECT id FROM o WHERE kind = 'JobSucceeded'), (SELECT numbers FROM g WHERE kind = 'JobSucceeded'),
        array_agg(u.number::integer), array_agg(u.lane) FILTER (WHERE u.was_full AND NOT u.retries
        AND (u.overruled OR u.state <> 'dead')), array_agg(u.oldest) FILTER (WHERE u.was_full AND NOT u.retries
        AND (u.overruled OR u.state <> 'dead')), array_agg(u.lane) FILTER (WHERE u.is_mixed),
        array_agg(u.lane) FILTER (WHERE NOT u.retries AND (u.earlier IS NOT NULL OR u.stop IS NOT NULL)),
        array_agg(u.run_id) FILTER (WHERE u.state = 'dead' AND NOT u.overruled),
        array_agg(u.definition) FILTER (WHERE u.state = 'dead' AND NOT u.overruled)
    INTO v_settled.outbox, v_settled.numbers, v_stored, v_crowded, v_oldest, v_mixed, v_wordy, v_dead,
        v_dead_definitions FROM u;
    IF v_dead IS NOT NULL THEN
        PERFORM _tell_admins(v_dead, v_dead_definitions);
    END IF;
    IF v_wordy IS NOT NULL THEN  -- the texts are in the history now
        UPDATE lane SET error = NULL, earlier = NULL, stop = NULL, stop_by = NULL WHERE id = ANY (v_wordy);
    END IF;
    IF v_mixed IS NOT NULL THEN  -- a statement after the locks sees the next run
        PERFORM _refresh(id, p_at) FROM unnest(v_mixed) id;
    END IF;
    PERFORM _forget_oldest(v_crowded, v_oldest);
    IF v_settled.outbox IS NOT NULL THEN
        v_settled.what := 4;
        v_settled.at := p_at;
        RETURN NEXT v_settled;
    END IF;
    v_stored := coalesce(v_stored, '{}') || coalesce(p_done, '{}');
    IF cardinality(v_stored) < cardinality(s_runs) THEN
        v_refused.what := 3;
        v_refused.numbers := ARRAY(SELECT i FROM generate_subscripts(s_runs, 1) i WHERE i <> ALL (v_stored));
        RETURN NEXT v_refused;
    END IF;
END $$;

-- The rows 1 of an answer.
CREATE FUNCTION _claim(
    p_now timestamptz, c_node text, c_hand integer, c_number bigint, c_is_repeat boolean, c_handlers text[],
    c_limit integer, c_lease interval, c_queues text[], c_slots integer[]
) RETURNS SETOF exchanged LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz;
    v_tells boolean := _records_facts();
    v_left integer := c_limit;
    v_room integer;
    v_slots integer[] := c_slots;
    v_picked tid[];  -- addresses of locked rows, which do not move
    v_claimed exchanged;
    v_found integer;
    v_lane bigint;
    b record;
BEGIN
    IF coalesce(c_is_repeat, c_number <> 0 AND _is_repeat(c_node, c_hand, c_number)) THEN
        RETURN QUERY SELECT * FROM _leases(1, c_handlers, 'infinity') l
            WHERE l.node_id = c_node AND l.numbers = ARRAY[c_number::integer];
        RETURN;
    END IF;
    v_at := coalesce(p_now, clock_timestamp());
    FOR v_lane IN SELECT id FROM lane WHERE turns_at <= v_at ORDER BY turns_at LIMIT 100 FOR UPDATE SKIP LOCKED LOOP
        PERFORM _refresh(v_lane, v_at);  -- its head may have another handler now (RUN-2)
    END LOOP;
    FOR b IN
        SELECT * FROM _waiting(v_at, c_node, c_handlers, c_queues) ORDER BY priority DESC, oldest
    LOOP
        EXIT WHEN v_left <= 0;
        v_room := least(v_left, CASE WHEN c_queues IS NOT NULL THEN v_slots[array_position(c_queues, b.queue)] END);
        CONTINUE WHEN v_room <= 0;
        v_picked := ARRAY(
            SELECT ctid FROM lane WHERE place = b.id AND ready_at <= v_at
            ORDER BY ready_at LIMIT v_room FOR UPDATE SKIP LOCKED);
        v_at := coalesce(p_now, clock_timestamp());
        v_claimed := _hand_over(v_picked, b.id, b.queue, b.is_missing, v_tells, v_at, c_node, c_number, c_lease);
        v_found := coalesce(cardinality(v_claimed.runs), 0);
        IF v_found > 0 THEN
            RETURN NEXT v_claimed;
        END IF;
        IF v_found < cardinality(v_picked) THEN  -- the head of a lane has changed
            FOR v_lane IN SELECT id FROM lane WHERE ctid = ANY (v_picked) AND NOT leased LOOP
                PERFORM _refresh(v_lane, v_at);
            END LOOP;
        END IF;
        v_left := v_left - v_found;
        IF c_queues IS NOT NULL THEN
            v_slots[array_position(c_queues, b.queue)] := v_room - v_found;
        END IF;
    END LOOP;
END $$;

-- True if this node made this request before; otherwise remembers it.
CREATE FUNCTION _is_repeat(p_node text, p_hand integer, p_number bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE hand SET number = p_number WHERE node_id = p_node AND hand = p_hand AND number <> p_number;
    IF FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO hand VALUES (p_node, p_hand, p_number) ON CONFLICT DO NOTHING;
    RETURN NOT FOUND;
END $$;

-- Lease the heads of the picked lanes. The lanes are locked; this statement sees what was committed before that.
CREATE FUNCTION _hand_over(
    p_picked tid[], p_band integer, p_queue text, p_is_missing boolean, p_tells boolean, p_at timestamptz,
    p_node text, p_number bigint, p_lease interval
) RETURNS exchanged LANGUAGE plpgsql AS $$
DECLARE
    v_claimed exchanged;
BEGIN
    WITH c AS MATERIALIZED (
        SELECT h.*, p.row, h.definition <> l.definition OR l.settled_by IS DISTINCT FROM p_node AS is_new
        FROM unnest(p_picked) p(row)
        CROSS JOIN LATERAL (SELECT * FROM lane WHERE lane.ctid = p.row OFFSET 0) l
        CROSS JOIN LATERAL (
            (SELECT run_id, lane, seq, definition, payload, cause, due, event, depth FROM run
             WHERE l.run_id IS NOT NULL AND run_id = l.run_id)
            UNION ALL  -- the first delayed run that is due, unless an earlier one waits
            (SELECT run_id, lane, seq, definition, payload, cause, due, event, depth FROM run r
             WHERE l.is_mixed AND l.run_id IS NULL AND lane = l.id AND start_at <= p_at AND NOT EXISTS (
                 SELECT FROM run WHERE lane = l.id AND start_at IS NULL AND seq >= l.seq AND seq < r.seq)
             ORDER BY seq LIMIT 1)
            UNION ALL
            (SELECT run_id, lane, seq, definition, payload, cause, due, event, depth FROM run
             WHERE l.run_id IS NULL AND lane = l.id AND start_at IS NULL AND seq >= l.seq ORDER BY seq LIMIT 1)
            LIMIT 1
        ) h
        WHERE NOT l.leased AND l.is_open AND l.place = p_band AND l.ready_at <= p_at AND (
            h.definition = l.definition OR (SELECT d.handler FROM definition d WHERE d.id = h.definition)
            = (SELECT handler FROM band WHERE id = p_band))
    ), u AS (
        UPDATE lane SET
            token = lane.token + 1, leased = true, place = 0, ready_at = p_at + p_lease,
            lease_until = p_at + p_lease, run_id = c.run_id, seq = c.seq, definition = c.definition, node_id = p_node,
            claim_number = p_number, started_at = p_at, last_attempt_at = p_at, retry_at = NULL, turns_at = NULL,
            removed = false,
            attempt = CASE WHEN lane.run_id IS NULL THEN 1 ELSE lane.attempt + 1 END,
            first_started_at = CASE WHEN lane.run_id IS NULL THEN p_at ELSE lane.first_started_at END
        FROM c WHERE lane.ctid = c.row
        RETURNING lane.id, lane.attempt, lane.token, lane.first_started_at, c.run_id, c.definition, c.payload, c.cause,
            c.due, c.event, c.depth, c.is_new
    ), a AS MATERIALIZED (
        SELECT array_agg(u.id) AS lane, array_agg(u.run_id) AS runs, array_agg(u.definition) AS definitions,
            CASE WHEN count(u.payload) > 0 THEN array_agg(u.payload) END AS payloads, array_agg(u.cause) AS causes,
            array_agg(u.attempt) AS attempts, max(u.attempt) AS attempt, array_agg(u.token) AS tokens,
            CASE WHEN bool_or(u.first_started_at <> p_at) THEN array_agg(u.first_started_at) END AS firsts,
            CASE WHEN count(u.due) > 0 THEN array_agg(u.due) END AS dues,
            CASE WHEN count(u.event) > 0 THEN array_agg(u.event) END AS events,
            CASE WHEN max(u.depth) > 0 THEN array_agg(u.depth) END AS depths, array_agg(u.depth + 1) AS next_depths,
            CASE WHEN count(d.body) > 0 THEN array_agg(d.body) END AS bodies,
            CASE WHEN count(d.body) > 0 THEN array_agg(d.payload) END AS body_payloads
        FROM u LEFT JOIN LATERAL (SELECT body, payload FROM definition WHERE id = u.definition OFFSET 0) d ON u.is_new
        HAVING count(*) > 0
    ), o AS (
        INSERT INTO outbox (lane, definition, at, run_id, due, attempt, depth, kind, cause)
        SELECT a.lane, a.definitions, p_at, a.runs, a.dues, a.attempts, a.next_depths, 'JobTriggered', a.causes
        FROM a WHERE p_tells
        RETURNING id
    )
    SELECT 1, p_at, (SELECT id FROM o), a.runs, a.definitions, a.payloads, a.causes,
        CASE WHEN a.attempt > 1 THEN a.attempts END, a.tokens, a.firsts, a.dues, a.events, a.depths, ARRAY[p_queue],
        a.bodies, a.body_payloads, p_is_missing
    INTO v_claimed.what, v_claimed.at, v_claimed.outbox, v_claimed.runs, v_claimed.definitions, v_claimed.payloads,
        v_claimed.causes, v_claimed.attempts, v_claimed.tokens, v_claimed.firsts, v_claimed.dues, v_claimed.events,
        v_claimed.depths, v_claimed.queues, v_claimed.bodies, v_claimed.body_payloads, v_claimed.is_missing
    FROM a;
    RETURN v_claimed;
END $$;

-- Leases to be checked until p_until, one per row; `numbers` has the number of the claim.
CREATE FUNCTION _leases(p_what integer, p_handlers text[], p_until timestamptz) RETURNS SETOF exchanged
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT p_what, l.started_at, NULL::timestamptz, NULL::bigint, ARRAY[l.claim_number::integer], ARRAY[l.run_id],
        ARRAY[l.definition], ARRAY[r.payload], ARRAY[r.cause], ARRAY[l.attempt], ARRAY[l.token],
        ARRAY[l.first_started_at], ARRAY[r.due], ARRAY[r.event], ARRAY[r.depth], ARRAY[l.queue], ARRAY[d.body],
        ARRAY[d.payload], d.handler <> ALL (p_handlers), l.node_id, l.lease_until
    FROM lane l
    CROSS JOIN LATERAL (SELECT * FROM run WHERE run_id = l.run_id OFFSET 0) r
    CROSS JOIN LATERAL (SELECT * FROM definition WHERE id = l.definition OFFSET 0) d
    WHERE l.place = 0 AND l.ready_at <= p_until ORDER BY l.ready_at;
END;

-- For refused settlements: true if the same node settled the run with the same token before.
CREATE FUNCTION settled_before(p_scopes text[], p_jobs text[], p_tokens bigint[], p_nodes text[])
RETURNS SETOF boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce((
        SELECT settled_token = i.token AND settled_by = i.node FROM lane WHERE id = (
            SELECT lane FROM job WHERE scope_id = i.scope AND job_id = i.job)), false)
    FROM unnest(p_scopes, p_jobs, p_tokens, p_nodes) WITH ORDINALITY i(scope, job, token, node, n) ORDER BY i.n
$$;

-- Lanes that became ready before the clock was set back, and now seem to be ready only later (CRON-9): at most 10,000, the
-- next renewal finds the others.
CREATE FUNCTION _held_up(p_node text, p_at timestamptz) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_until timestamptz := (SELECT seen_at + lease FROM node WHERE node_id = p_node AND seen_at > p_at);
BEGIN
    RETURN ARRAY(
        SELECT l.id FROM band CROSS JOIN LATERAL (
            SELECT id FROM lane WHERE place = band.id AND ready_at > p_at AND ready_at <= v_until AND run_id IS NULL
            OFFSET 0) l
        WHERE v_until IS NOT NULL LIMIT 10000);
END $$;

-- what: 0 the store's time, 1 lost (number), 2 asked to stop (number, reason), 3 held but not listed.
CREATE FUNCTION renew(
    p_now timestamptz, p_node text, p_handlers text[], p_slots integer, p_running integer, p_host text, p_pid integer,
    p_lease interval, p_started timestamptz, p_runs uuid[], p_tokens bigint[], p_leases interval[]
) RETURNS TABLE (what integer, number integer, at timestamptz, reason text, scope_id text, job_id text, run_id uuid,
    token bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_at timestamptz;
    v_held_up bigint[] := _held_up(p_node, coalesce(p_now, clock_timestamp()));
BEGIN
    PERFORM FROM lane WHERE id = ANY (v_held_up || ARRAY(SELECT lane FROM run WHERE run_id = ANY (p_runs)))
    ORDER BY id FOR UPDATE;
    v_at := coalesce(p_now, clock_timestamp());
    PERFORM _refresh(id, v_at) FROM unnest(v_held_up) id;
    INSERT INTO node AS n (node_id, handlers, slots, running, host, pid, lease, started_at, seen_at, steady_since)
    VALUES (p_node, p_handlers, p_slots, p_running, p_host, p_pid, p_lease, p_started, v_at, v_at)
    ON CONFLICT (node_id) DO UPDATE SET handlers = excluded.handlers, slots = excluded.slots,
        running = excluded.running, host = excluded.host, pid = excluded.pid, lease = excluded.lease,
        started_at = excluded.started_at, seen_at = excluded.seen_at, steady_since = _steady_since(n, v_at);
    RETURN QUERY
    WITH i AS MATERIALIZED (
        SELECT i.n, i.lease, l.row, l.stop
        FROM unnest(p_runs, p_tokens, p_leases) WITH ORDINALITY i(run_id, token, lease, n)
        LEFT JOIN LATERAL (SELECT lane FROM run WHERE run_id = i.run_id OFFSET 0) r ON true
        LEFT JOIN LATERAL (
            SELECT ctid AS row, stop FROM lane
            WHERE id = r.lane AND leased AND token = i.token AND run_id = i.run_id AND node_id = p_node OFFSET 0
        ) l ON true
    ), u AS (
        UPDATE lane SET ready_at = greatest(lease_until, v_at + i.lease),
            lease_until = greatest(lease_until, v_at + i.lease) FROM i
        WHERE lane.ctid = i.row
    )
    SELECT CASE WHEN i.row IS NULL THEN 1 ELSE 2 END, i.n::integer, v_at, i.stop, NULL, NULL, NULL::uuid, NULL::bigint
    FROM i WHERE i.row IS NULL OR i.stop IS NOT NULL;
    RETURN QUERY
    SELECT 3, 0, v_at, NULL, j.scope_id, j.job_id, s.run_id, s.token FROM (
        SELECT l.run_id, l.token FROM lane l WHERE l.place = 0 AND l.ready_at IS NOT NULL AND l.node_id = p_node
        EXCEPT  -- EXCEPT uses a hash; a join would compare each with all others
        SELECT * FROM unnest(p_runs, p_tokens)
    ) s
    CROSS JOIN LATERAL (SELECT lane FROM run WHERE run_id = s.run_id OFFSET 0) r
    CROSS JOIN LATERAL (SELECT scope_id, job_id FROM job WHERE lane = r.lane OFFSET 0) j;
    RETURN QUERY SELECT 0, 0, v_at, NULL, NULL, NULL, NULL::uuid, NULL::bigint;
END $$;

CREATE FUNCTION hand_back(p_now timestamptz, p_tag text, p_runs uuid[], p_tokens bigint[], p_leaving text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz;
    l lane;
BEGIN
    PERFORM FROM lane WHERE id = ANY (ARRAY(SELECT lane FROM run WHERE run_id = ANY (p_runs))) ORDER BY id FOR UPDATE;
    v_at := coalesce(p_now, clock_timestamp());
    FOR l IN
        SELECT lane.* FROM unnest(p_runs, p_tokens) i(run_id, token)
        CROSS JOIN LATERAL (SELECT lane AS id FROM run WHERE run_id = i.run_id OFFSET 0) r
        CROSS JOIN LATERAL (SELECT * FROM lane WHERE id = r.id AND leased AND run_id = i.run_id AND token = i.token
                            OFFSET 0) lane
    LOOP
        UPDATE lane SET leased = false, attempt = attempt - 1, retry_at = v_at, ready_at = NULL,
            first_started_at = CASE WHEN earlier IS NOT NULL THEN first_started_at END,
            -- A run that has no earlier attempt goes back to the front of the queue.
            run_id = CASE WHEN earlier IS NOT NULL OR removed OR stop IS NOT NULL THEN run_id END
        WHERE id = l.id;
        IF l.removed OR l.stop IS NOT NULL THEN
            PERFORM _cancel(l.id, ARRAY[l.run_id], coalesce(l.stop, 'unscheduled'), l.stop_by, v_at);
        END IF;
        -- Its delay has ended once: setting the clock back must not make it wait again.
        UPDATE run SET start_at = NULL WHERE run_id = l.run_id AND start_at IS NOT NULL;
        PERFORM _refresh(l.id, v_at);
    END LOOP;
    DELETE FROM node WHERE node_id = p_leaving;
    DELETE FROM hand WHERE node_id = p_leaving;
    UPDATE named_lock SET holder = NULL, until = '-infinity'
    WHERE name IN ('_relay.events', '_relay.admins') AND holder = p_leaving;
    PERFORM _announce(p_tag);
END $$;

CREATE FUNCTION cancel(p_now timestamptz, p_tag text, p_run uuid, p_scope text, p_reason text, p_request uuid)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_at timestamptz;
    v_lane bigint;
    l lane;
BEGIN
    SELECT r.lane INTO v_lane FROM (
        SELECT lane FROM run WHERE run_id = p_run UNION ALL SELECT lane FROM arrival WHERE run_id = p_run) r
    CROSS JOIN LATERAL (SELECT FROM job WHERE lane = r.lane AND scope_id = p_scope OFFSET 0) j;
    PERFORM FROM lane WHERE id = v_lane FOR UPDATE;
    v_at := coalesce(p_now, clock_timestamp());
    PERFORM _drain_lane(v_lane, v_at);
    IF NOT EXISTS (SELECT FROM run WHERE run_id = p_run AND lane = v_lane) THEN
        RETURN EXISTS (SELECT FROM history h
                       CROSS JOIN LATERAL (SELECT FROM job WHERE lane = h.lane AND scope_id = p_scope OFFSET 0) j
                       WHERE h.run_id = p_run AND h.ended_by = p_request)
            OR EXISTS (SELECT FROM letter WHERE run_id = p_run AND scope_id = p_scope AND ended_by = p_request);
    END IF;
    SELECT * INTO l FROM lane WHERE id = v_lane;
    IF l.leased AND l.run_id = p_run THEN
        UPDATE lane SET stop = coalesce(stop, p_reason), stop_by = p_request WHERE id = v_lane;
        RETURN true;
    END IF;
    PERFORM _cancel(v_lane, ARRAY[p_run], p_reason, p_request, v_at);
    PERFORM _refresh(v_lane, v_at);
    PERFORM _announce(p_tag);
    RETURN true;
END $$;
