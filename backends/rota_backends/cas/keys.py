"""Where things are. Keys sort, so that a page of a scan is the answer to a question.

    meta/schema                                   the version of this layout
    lane/SCOPE/JOB                                a job's lane: every write about a job goes through it
    run/SCOPE/JOB/-SEQ          id/RUN            its runs, newest first; and where a run is, by its id
    decision/SCOPE/JOB/SLOT                       its newest decisions, as a ring
    key/KIND/SCOPE/JOB/KEY      expiry/AT/KEY     idempotency keys of registrations, triggers and events
    key/replay/SCOPE/RUN                          by which run a letter was replayed
    ready/-PRIORITY/SINCE/JOB                     lanes to be claimed now
    later/AT/JOB/HANDLER                          lanes to be claimed when their time or their lease is over
    due/AT/JOB                  held/NODE/JOB     jobs by their next occurrence; leases by their node
    subscription/MODULE/TYPE/JOB                  jobs that wait for an event
    letter/SCOPE/AT/SEQ         done/AT/RUN       dead letters; finished runs by when they ended
    outbox/AUDIENCE/SEQ   aside/AUDIENCE/SEQ      facts to be told; facts that could not be delivered
    node/ID     lock/NAME       setting/NAME      the small services

Names may contain anything printable; they are escaped, except as the last part, where escaping would change the order.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import UUID

from rota.backend.messages import FACTS_WANTED, Audience, JobKey
from rota.decide.events import SCOPE_SEPARATOR

META_SCHEMA = "meta/schema"
DECISIONS_KEPT = 1000

_YEAR_1 = datetime.min.replace(tzinfo=UTC)
_TOP = 10**20 - 1


def micros(instant: datetime) -> int:
    """An instant as a number that sorts."""
    since = instant - _YEAR_1
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def name(text: str) -> str:
    """A name as a part of a key."""
    return text.replace("%", "%25").replace("/", "%2F")


def path(key: JobKey) -> str:
    """A job as a part of a key."""
    return f"{name(key.scope_id)}/{name(key.job_id)}"


def lanes(scope_id: str) -> str:
    """The lanes of a scope, in code-point order of the job id."""
    return f"lane/{name(scope_id)}/"


def lane(key: JobKey) -> str:
    """A job's lane."""
    return lanes(key.scope_id) + key.job_id


def job_of(lane: str) -> str:
    """A job as people read it, from the key of its lane."""
    _, scope_id, job_id = lane.split("/", 2)
    return f"{job_id!r} in scope {scope_id.replace('%2F', '/').replace('%25', '%')!r}"


def runs(key: JobKey) -> str:
    """A job's runs."""
    return f"run/{path(key)}/"


def run(key: JobKey, seq: int) -> str:
    """Newest first: a scan goes only one way."""
    return f"{runs(key)}{_TOP - seq:020d}"


def ident(run_id: UUID) -> str:
    """Where the key of a run is found by its id."""
    return f"id/{run_id.hex}"


def decision(key: JobKey, number: int) -> str:
    """The n-th decision of a job: its place in the ring."""
    return f"decision/{path(key)}/{number % DECISIONS_KEPT:03d}"


def taken(kind: str, key: JobKey, text: str) -> str:
    """An idempotency key; of an event of another scope the text has two parts (`event_occurrence`)."""
    return f"key/{kind}/{path(key)}/{'/'.join(map(name, text.split(SCOPE_SEPARATOR)))}"


def replayed(scope_id: str, letter: UUID) -> str:
    """Under the scope, not the job: retention may have forgotten the letter and its job."""
    return f"key/replay/{name(scope_id)}/{letter.hex}"


def at(prefix: str, instant: datetime, rest: str) -> str:
    """A key that sorts by an instant."""
    return f"{prefix}/{micros(instant):020d}/{rest}"


def instant_of(key: str) -> datetime:
    """The instant in a key made by `at`."""
    return _YEAR_1 + timedelta(microseconds=int(key.split("/", 2)[1]))


def ready(priority: int, since: int, key: JobKey) -> str:
    """A place in the line: highest priority first, then the lane that became ready first."""
    return f"ready/{2**31 - 1 - priority:010d}/{since:020d}/{path(key)}"


def letters(scope_id: str) -> str:
    """The dead letters of a scope."""
    return f"letter/{name(scope_id)}/"


def letter(scope_id: str, ended_at: datetime, seq: int, run_id: UUID) -> str:
    """A dead letter: oldest first, then in order of arrival."""
    return f"{letters(scope_id)}{micros(ended_at):020d}/{seq:020d}/{run_id.hex}"


def subscriptions(module: str, event_type: str, scope_id: str) -> str:
    """The jobs of a scope that wait for a kind of event."""
    return f"subscription/{name(module)}/{name(event_type)}/{name(scope_id)}/"


def setting(text: str) -> str:
    """A stored number, by its name."""
    return f"setting/{text}"


FACTS = setting(FACTS_WANTED)


def lock(text: str) -> str:
    """A named lock."""
    return f"lock/{text}"


def fact_seq(tick: int, key: JobKey) -> int:
    """Ascending per job, and no two alike: the tick of the lane, then a digest of the job."""
    return tick << 64 | int.from_bytes(sha256("\x00".join(key).encode()).digest()[:8], "big")


def outbox(audience: Audience) -> str:
    """The facts that an audience is to be told, in order."""
    return f"outbox/{audience.value}/"


def fact(audience: Audience, seq: int) -> str:
    """A fact that an audience is to be told."""
    return f"{outbox(audience)}{seq:040d}"


def aside(audience: Audience, seq: int) -> str:
    """A fact that could not be delivered to an audience."""
    return f"aside/{audience.value}/{seq:040d}"
