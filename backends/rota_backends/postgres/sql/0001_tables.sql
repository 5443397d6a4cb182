-- The tables. Run with search_path set to the schema of the store; docs/explanation/postgres.md says what each one holds.
-- Times are the store's. Names are compared byte by byte (ID-1). Tables that fill and empty all day are vacuumed early and
-- never truncated, because truncating takes a lock that blocks every call.

-- Whole numbers by name: positions of event stores, `_facts` and `_admins` (see rota.backend), and how far retention has
-- looked (`_pruned_lanes`, `_pruned_decisions`).
CREATE TABLE setting (
    name text PRIMARY KEY,
    value bigint NOT NULL
);

-- The definition under which a run was queued: written once, referred to by number, cached by clients.
CREATE TABLE definition (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane bigint NOT NULL,
    handler text NOT NULL,
    queue text NOT NULL, -- queue and priority follow the job when it is registered again
    priority integer NOT NULL,
    body text NOT NULL, -- all but the payload
    payload bytea NOT NULL,
    retired_at timestamptz
);
CREATE INDEX definition_retired ON definition (retired_at) WHERE retired_at IS NOT NULL;
CREATE INDEX definition_lane ON definition (lane);
CREATE INDEX definition_band ON definition (handler, queue, priority);

-- One row per job key. It stays when the job is removed: mark, revision and tokens go on (CRON-4, LEASE-1).
CREATE TABLE job (
    lane bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope_id text COLLATE "C" NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    definition bigint,
    revision bigint NOT NULL DEFAULT 0,
    owner text,
    paused text,
    next_due timestamptz,
    decided timestamptz,
    requests uuid[] NOT NULL DEFAULT '{}',  -- the last eight requests that changed the job, the newest first
    fired_since boolean NOT NULL DEFAULT false,
    source_module text,
    event_type text,
    subject text,
    UNIQUE (scope_id, job_id)
);
CREATE INDEX job_defined ON job (scope_id, job_id) WHERE definition IS NOT NULL;
CREATE INDEX job_owned ON job (scope_id, owner, job_id) WHERE owner IS NOT NULL;
CREATE INDEX job_due ON job (next_due, lane) WHERE next_due IS NOT NULL; -- lane: thousands may be due at one instant
-- A digest of the subject: four names of 200 four-byte characters are more than an index row may hold.
CREATE INDEX job_listening ON job (source_module, event_type, scope_id, (md5(subject)::uuid))
    WHERE source_module IS NOT NULL;

-- Lanes whose heads have the same priority, queue and handler are in one band: a claim looks only into bands it serves.
CREATE TABLE band (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    priority integer NOT NULL,
    queue text NOT NULL,
    handler text NOT NULL,
    UNIQUE (priority, queue, handler)
);

-- The hot row of a job, with the changing state of its active run: the run that is leased or waits for its next attempt.
-- ready_at is when the lane may be claimed (place = its band), or when to check whether its lease has ended (place = 0,
-- lease_until is not before ready_at); null while the lane is empty, paused or removed. In a lane that is not mixed, all
-- runs may start at once and have the lane's definition. While run_id is null, the columns about the active run still have
-- the values of the last one: the next claim sets them.
CREATE TABLE lane (
    id bigint PRIMARY KEY,
    place integer NOT NULL DEFAULT 0,
    ready_at timestamptz,
    band integer NOT NULL,
    definition bigint NOT NULL,
    is_open boolean NOT NULL DEFAULT true,
    leased boolean NOT NULL DEFAULT false,
    removed boolean NOT NULL DEFAULT false,
    is_mixed boolean NOT NULL DEFAULT false,
    was_full boolean NOT NULL DEFAULT false, -- before the last settlement, its history was at the limit already
    attempt integer NOT NULL DEFAULT 0,
    priority integer NOT NULL,
    unfinished integer NOT NULL DEFAULT 0,
    kept integer NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0,
    seq bigint NOT NULL DEFAULT 0,
    last_seq bigint NOT NULL DEFAULT 0,
    oldest bigint NOT NULL DEFAULT 0, -- no finished run in its history has a lower seq
    claim_number bigint NOT NULL DEFAULT 0,
    settled_token bigint NOT NULL DEFAULT 0,
    started_at timestamptz,
    first_started_at timestamptz,
    lease_until timestamptz,
    retry_at timestamptz,
    turns_at timestamptz, -- when a delayed run may come before a waiting one with another handler
    last_attempt_at timestamptz,
    last_success_at timestamptz,
    last_failure_at timestamptz,
    run_id uuid,
    stop_by uuid,
    queue text NOT NULL,
    node_id text,
    settled_by text,
    stop text,
    error text,
    earlier jsonb
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off);
CREATE INDEX lane_place ON lane (place, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX lane_turns ON lane (turns_at) WHERE turns_at IS NOT NULL;

-- Unfinished runs only: inserted and deleted, updated only when a delay has ended.
CREATE TABLE run (
    run_id uuid PRIMARY KEY,
    lane bigint NOT NULL,
    seq bigint NOT NULL,
    definition bigint NOT NULL,
    queued_at timestamptz NOT NULL,
    start_at timestamptz,
    due timestamptz,
    covers_from timestamptz,
    covers_to timestamptz,
    replay_of uuid,
    missed_count integer NOT NULL DEFAULT 0,
    depth integer NOT NULL DEFAULT 0,
    cause text NOT NULL,
    event_id text,
    event text,
    payload bytea
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off);
CREATE INDEX run_waiting ON run (lane, seq) WHERE start_at IS NULL;
CREATE INDEX run_delayed ON run (lane, start_at) WHERE start_at IS NOT NULL;

-- Finished runs: appended, and deleted by retention. A run without an outcome ended between two attempts.
CREATE TABLE history (
    run_id uuid PRIMARY KEY,
    lane bigint NOT NULL,
    seq bigint NOT NULL,
    queued_at timestamptz NOT NULL,
    started_at timestamptz,
    first_started_at timestamptz,
    ended_at timestamptz NOT NULL,
    due timestamptz,
    covers_from timestamptz,
    covers_to timestamptz,
    replay_of uuid,
    replayed_by uuid,
    ended_by uuid,
    token bigint,
    records bigint,
    missed_count integer NOT NULL,
    attempt integer NOT NULL,
    state text NOT NULL,
    cause text NOT NULL,
    handler text NOT NULL,
    event_id text,
    outcome text,
    node_id text,
    error text,
    reason text,
    earlier jsonb
);
CREATE INDEX history_lane ON history (lane, seq);
CREATE INDEX history_ended ON history (ended_at);

-- Dead letters keep event and payload for a replay, and retention by count leaves them alone (HIST-2).
CREATE TABLE letter (
    LIKE history,
    scope_id text COLLATE "C" NOT NULL,
    depth integer NOT NULL,
    event text,
    payload bytea,
    PRIMARY KEY (run_id)
);
CREATE INDEX letter_lane ON letter (lane, seq);
CREATE INDEX letter_lane_ended ON letter (lane, ended_at, run_id);
CREATE INDEX letter_scope ON letter (scope_id, ended_at, run_id);
CREATE INDEX letter_ended ON letter (ended_at);

-- Triggers stored inside a transaction of the application (TX-1); the next claim moves them to their lanes.
CREATE TABLE arrival (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane bigint NOT NULL,
    run_id uuid NOT NULL UNIQUE,
    definition bigint NOT NULL REFERENCES definition, -- so that it is not pruned while the transaction is open
    queued_at timestamptz NOT NULL,
    start_at timestamptz,
    cause text NOT NULL,
    payload bytea
) WITH (vacuum_truncate = off);
CREATE INDEX arrival_lane ON arrival (lane, id);

-- Facts that an audience was not told yet: events, or admins. One row holds the facts of one batch, with an array per
-- column and an entry per fact; a column is null if no fact has a value for it. A job's facts are numbered under the lock
-- of its lane (HIST-3). `told` has the places of facts already told.
CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY,
    audience text NOT NULL DEFAULT 'events',
    at timestamptz NOT NULL,
    revision bigint NOT NULL DEFAULT 0,
    kind text NOT NULL,
    told integer[] NOT NULL DEFAULT '{}',
    size integer NOT NULL GENERATED ALWAYS AS (cardinality(lane)) STORED,  -- known without reading the arrays
    lane bigint[] NOT NULL,
    definition bigint[] NOT NULL,
    run_id uuid[],
    attempt integer[],
    depth integer[],
    cause text[],
    due timestamptz[],
    started_at timestamptz[],
    next_attempt_at timestamptz[],
    records bigint[],
    error text[],
    PRIMARY KEY (audience, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off);
ALTER TABLE outbox  -- a row lives for less than a second: compressing it costs more than the disk
    ALTER lane SET STORAGE EXTERNAL, ALTER definition SET STORAGE EXTERNAL, ALTER run_id SET STORAGE EXTERNAL,
    ALTER attempt SET STORAGE EXTERNAL, ALTER depth SET STORAGE EXTERNAL, ALTER cause SET STORAGE EXTERNAL,
    ALTER due SET STORAGE EXTERNAL, ALTER started_at SET STORAGE EXTERNAL;
-- Facts that could not be delivered after all tries.
CREATE TABLE set_aside (
    outbox bigint NOT NULL,
    place integer NOT NULL,
    at timestamptz NOT NULL,
    kind text NOT NULL,
    lane bigint NOT NULL,
    definition bigint NOT NULL,
    run_id uuid,
    attempt integer,
    error text,
    why text NOT NULL,
    PRIMARY KEY (outbox, place)
);

CREATE TABLE decision (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane bigint NOT NULL,
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    count integer NOT NULL,
    run_id uuid,
    kind text NOT NULL,
    detail text
);
CREATE INDEX decision_lane ON decision (lane, id);

CREATE TABLE held_key (
    kind text NOT NULL,
    lane bigint NOT NULL,  -- 0 for replays: retention may have deleted the letter
    name text COLLATE "C" NOT NULL,
    holder uuid NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (kind, lane, name)
) WITH (vacuum_truncate = off);
CREATE INDEX held_key_until ON held_key (until);

CREATE TABLE node (
    node_id text PRIMARY KEY,
    handlers text[] NOT NULL DEFAULT '{}',
    slots integer NOT NULL DEFAULT 0,
    running integer NOT NULL DEFAULT 0,
    host text NOT NULL DEFAULT '',
    pid integer NOT NULL DEFAULT 0,
    lease interval NOT NULL DEFAULT '0',
    started_at timestamptz,
    seen_at timestamptz,
    steady_since timestamptz  -- in contact without a gap (rota.backend.liveness)
) WITH (fillfactor = 50);

-- The number of the last claim of each hand of a node: the same number again is a repeat.
CREATE TABLE hand (
    node_id text NOT NULL,
    hand integer NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (node_id, hand)
) WITH (fillfactor = 50);

-- Locks of applications, and under reserved names (`_relay.events`, `_relay.admins`) the leases of relaying nodes.
CREATE TABLE named_lock (
    name text PRIMARY KEY,
    token bigint NOT NULL,
    holder text,
    until timestamptz NOT NULL
) WITH (fillfactor = 50);
