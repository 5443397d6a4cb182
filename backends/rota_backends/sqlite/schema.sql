-- Rota in SQLite, version 1. Instants and durations are whole microseconds (instants since 1970, UTC), ids of runs are
-- 16 bytes, enums are the small numbers listed in codes.py, values of the model are JSON as rota.codec writes it.

CREATE TABLE rota_meta (
    name TEXT PRIMARY KEY,              -- schema: the version; runs, locks: the last number given
    value INTEGER NOT NULL
) WITHOUT ROWID;

-- A definition is stored once, however many runs were queued under it; it never changes.
CREATE TABLE rota_definition (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never given twice: every process keeps decoded ones by this number
    job INTEGER NOT NULL,
    is_current INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX rota_definition_old ON rota_definition (id) WHERE is_current = 0;

-- What is declared. A removed job keeps its row (definition null): revision, mark, tokens outlive it.
CREATE TABLE rota_job (
    id INTEGER PRIMARY KEY,
    scope_id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    definition INTEGER,
    handler TEXT NOT NULL DEFAULT '',
    revision INTEGER NOT NULL DEFAULT 0,
    owner TEXT,
    paused TEXT,
    next_due INTEGER,
    decided INTEGER,
    fired_since INTEGER NOT NULL DEFAULT 0, -- something fired after the newest decision
    requests BLOB NOT NULL DEFAULT x'',     -- the last ones that changed it, 16 bytes each, the newest first
    UNIQUE (scope_id, job_id)
);
CREATE INDEX rota_job_due ON rota_job (next_due) WHERE next_due IS NOT NULL;
CREATE INDEX rota_job_handler ON rota_job (handler) WHERE definition IS NOT NULL;
CREATE INDEX rota_job_owned ON rota_job (scope_id, owner, job_id) WHERE owner IS NOT NULL;

-- What is at work: one narrow row per job, with all that changes while its runs run. The run in `head` is the one that
-- may start, that waits for its retry (pinned), or that is leased (pinned, with lease_until).
CREATE TABLE rota_lane (
    id INTEGER PRIMARY KEY,
    rank INTEGER NOT NULL,              -- the priority, negated: ready lanes are read in ascending order
    queue TEXT NOT NULL,
    handler TEXT NOT NULL,              -- of the head
    ready_at INTEGER,                   -- claimable, since then
    wake_at INTEGER,                    -- becomes claimable, or changes its head, then
    head INTEGER,
    pinned INTEGER NOT NULL,
    lease_until INTEGER,
    token INTEGER NOT NULL,
    node TEXT,                          -- the holder, while leased
    number INTEGER NOT NULL,            -- of the holder's claim
    started_at INTEGER,
    stop TEXT,                          -- the leased run was asked to stop
    removed INTEGER NOT NULL,           -- its job was removed meanwhile
    settled_token INTEGER NOT NULL,     -- the last settlement, for its repeats
    settled_node TEXT,
    unfinished INTEGER NOT NULL,
    delayed INTEGER NOT NULL,           -- of them: their earliest start is still to come
    kept INTEGER NOT NULL,              -- finished runs in history, letters aside
    definition INTEGER,                 -- null: the job was removed
    paused INTEGER NOT NULL,
    last_attempt_at INTEGER,
    last_success_at INTEGER,
    last_failure_at INTEGER
);
CREATE INDEX rota_lane_ready ON rota_lane (rank, queue, handler, ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX rota_lane_wakes ON rota_lane (wake_at, rank) WHERE wake_at IS NOT NULL;
CREATE INDEX rota_lane_leased ON rota_lane (node, lease_until) WHERE lease_until IS NOT NULL;

-- Unfinished runs only: what a claim reads does not grow with what has ended.
CREATE TABLE rota_run (
    seq INTEGER PRIMARY KEY,            -- the order of arrival, numbered by rota_meta
    lane INTEGER NOT NULL,
    run_id BLOB NOT NULL,
    definition INTEGER NOT NULL,
    payload BLOB,                       -- null: the definition's
    cause INTEGER NOT NULL,
    state INTEGER NOT NULL,             -- 0 waits for its turn, 1 for its earliest start, 2 for its retry
    queued_at INTEGER NOT NULL,
    start_at INTEGER,
    due INTEGER,
    event TEXT,
    replay_of BLOB,
    covers_from INTEGER,
    covers_to INTEGER,
    missed_count INTEGER NOT NULL DEFAULT 0,
    depth INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0, -- attempts that ended
    first_started_at INTEGER,
    attempts TEXT,                      -- those attempts
    error TEXT,
    records INTEGER,
    ended_by BLOB
);
CREATE INDEX rota_run_waiting ON rota_run (lane) WHERE state = 0;
CREATE INDEX rota_run_delayed ON rota_run (lane, start_at) WHERE state = 1;

CREATE TABLE rota_history (
    seq INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    letter INTEGER NOT NULL,            -- a dead letter nobody dealt with
    run_id BLOB NOT NULL,
    definition INTEGER NOT NULL,
    payload BLOB,                       -- of the dead only
    cause INTEGER NOT NULL,
    state INTEGER NOT NULL,
    queued_at INTEGER NOT NULL,
    due INTEGER,
    event TEXT,
    replay_of BLOB,
    covers_from INTEGER,
    covers_to INTEGER,
    missed_count INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    first_started_at INTEGER,
    attempts TEXT,                      -- all but the last
    started_at INTEGER,                 -- the last attempt: these five, where outcome is not null
    ended_at INTEGER NOT NULL,
    outcome INTEGER,
    node TEXT,
    token INTEGER,
    error TEXT,
    reason TEXT,
    records INTEGER,
    ended_by BLOB,
    replayed_by BLOB
);
CREATE INDEX rota_history_lane ON rota_history (lane, letter);

-- Every run that is known, finished or not.
CREATE TABLE rota_ident (
    run_id BLOB PRIMARY KEY,
    seq INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE rota_letter (
    scope_id TEXT NOT NULL,
    ended_at INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (scope_id, ended_at, seq)
) WITHOUT ROWID;

CREATE TABLE rota_decision (
    id INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    count INTEGER NOT NULL,
    run_id BLOB,
    detail TEXT
);
CREATE INDEX rota_decision_lane ON rota_decision (lane);

CREATE TABLE rota_subscription (
    source_module TEXT NOT NULL,
    event_type TEXT NOT NULL,
    subject TEXT NOT NULL,              -- '' for any
    scope_id TEXT NOT NULL,
    lane INTEGER NOT NULL,
    PRIMARY KEY (source_module, event_type, subject, scope_id, lane)
) WITHOUT ROWID;
CREATE INDEX rota_subscription_lane ON rota_subscription (lane);

-- Idempotency keys: kind 0 of registrations, 1 of triggers, 2 of events; 3 of replays, named by scope and letter and of
-- lane 0: retention may have forgotten whose the letter was.
CREATE TABLE rota_key (
    kind INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    name TEXT NOT NULL,
    holder BLOB NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (kind, lane, name)
) WITHOUT ROWID;
CREATE INDEX rota_key_until ON rota_key (until);

-- Facts that an audience was not told yet; those of one transaction share rows of at most a hundred.
CREATE TABLE rota_outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never given twice: the numbers of the facts are made of it
    audience INTEGER NOT NULL,          -- 0 the event store, 1 the admins
    count INTEGER,                      -- null once some of them were told
    body TEXT NOT NULL                  -- as facts.py packs them
);
CREATE INDEX rota_outbox_audience ON rota_outbox (audience);

-- Facts that could not be delivered, or not even be read.
CREATE TABLE rota_aside (
    seq INTEGER PRIMARY KEY,
    audience INTEGER NOT NULL,
    definition INTEGER,
    kind INTEGER,
    run_id BLOB,
    at INTEGER NOT NULL,
    problem TEXT NOT NULL
);

CREATE TABLE rota_node (
    node TEXT PRIMARY KEY,
    info TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;

-- The last claim of a node that gave it anything: the same number again is a repeat.
CREATE TABLE rota_claim (
    node TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL
) WITHOUT ROWID;

-- Named locks; those whose name begins with _relay. are the leases of the nodes that relay.
CREATE TABLE rota_lock (
    name TEXT PRIMARY KEY,
    token INTEGER NOT NULL,
    until INTEGER NOT NULL,
    holder TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE rota_setting (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
