"""The statements, for one schema. `@.` stands for the schema's quoted name."""

from __future__ import annotations

from attrs import fields, frozen

_JOB = (
    "lane, scope_id, job_id, definition, revision, owner, paused, next_due, decided, queued, running, "
    "last_attempt_at, last_success_at, last_failure_at"
)


def quoted(name: str) -> str:
    """An identifier, whatever its characters."""
    return '"' + name.replace('"', '""') + '"'


def _call(name: str, count: int, what: str = "*") -> str:
    return f"SELECT {what} FROM @.{name}({', '.join(f'${number}' for number in range(1, count + 1))})"


@frozen
class Statements:
    """Every statement the backend sends."""

    schema: str
    now: str = "SELECT clock_timestamp()"
    announce: str = "SELECT pg_notify($1, $2)"
    definitions: str = (
        "SELECT d.id, d.body, d.payload, d.handler, d.queue, j.scope_id, j.job_id FROM @.definition d "
        "LEFT JOIN LATERAL (SELECT scope_id, job_id FROM @.job WHERE lane = d.lane OFFSET 0) j ON true "
        "WHERE d.id = ANY ($1)"
    )
    some_jobs: str = (
        "SELECT j.lane, j.scope_id, j.job_id, d.body, d.payload FROM @.job j "
        "LEFT JOIN LATERAL (SELECT body, payload FROM @.definition WHERE id = j.definition OFFSET 0) d ON true "
        "WHERE j.lane > $1 AND j.definition IS NOT NULL ORDER BY j.lane LIMIT $2"
    )
    standing: str = (
        f"SELECT t.at, {_JOB} FROM (SELECT coalesce($3::timestamptz, clock_timestamp()) AS at) t "
        "LEFT JOIN @.stored_job ON scope_id = $1 AND job_id = $2"
    )
    jobs: str = _call("job_page", 4, _JOB)
    register: str = _call("register", 21)
    remove: str = _call("remove", 7)
    pause: str = _call("pause", 9)
    due: str = _call("due_page", 2)
    fire: str = _call("fire", 3)
    enqueue: str = _call("enqueue", 14)
    arrive: str = _call("arrive", 12)
    heard: str = _call("heard", 2)
    listening: str = _call("listening", 4)
    notify: str = _call("notify_jobs", 21)
    exchange: str = _call("exchange", 21)
    settled_before: str = _call("settled_before", 4)
    renew: str = _call("renew", 12)
    hand_back: str = _call("hand_back", 5)
    cancel: str = _call("cancel", 6)
    one_run: str = _call("one_run", 2)
    history_page: str = _call("history_page", 3)
    letter_page: str = _call("letter_page", 4)
    discard: str = _call("discard", 3)
    decisions: str = (
        "SELECT kind, first_at, last_at, count, run_id, detail FROM @.decision "
        "WHERE lane = (SELECT lane FROM @.job WHERE scope_id = $1 AND job_id = $2) ORDER BY id DESC LIMIT $3"
    )
    prune: str = _call("prune", 5)
    relay: str = _call("relay", 16)
    census: str = _call("census", 2)
    nodes: str = (
        "SELECT * FROM @.node WHERE seen_at + lease > coalesce($1::timestamptz, clock_timestamp()) ORDER BY node_id"
    )
    lock: str = _call("hold_lock", 4)
    setting: str = _call("set_number", 3)
    warm_up: str = _call("warm_up", 0)

    def __attrs_post_init__(self) -> None:
        prefix = quoted(self.schema) + "."
        for each in fields(Statements)[1:]:
            object.__setattr__(self, each.name, getattr(self, each.name).replace("@.", prefix))
