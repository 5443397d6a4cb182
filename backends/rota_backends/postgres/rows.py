"""Rows as the values that cross the port, and values as the columns of a batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from itertools import count, repeat
from typing import Any

from rota.backend import (
    Claim,
    ClaimRequest,
    Fact,
    FactKind,
    Firing,
    JobKey,
    NewRun,
    NodeInfo,
    Settlement,
    StoredJob,
)
from rota.codec import to_dict
from rota.model.definition import JobDefinition
from rota.model.event import Event
from rota.model.run import Attempt, AttemptOutcome, Cause, Decision, DecisionKind, JobRun, RunState
from rota_backends.postgres.connections import Row
from rota_backends.postgres.definitions import Found, read, read_event, why_unreadable

_KINDS = {each.value: each for each in FactKind}
_CAUSES = {each.value: each for each in Cause}
_DECISION_KINDS = frozenset(each.value for each in DecisionKind)
_STATES = {each: each.value for each in RunState}
_OUTCOMES = {each: each.value for each in AttemptOutcome}
_FACT_BITS = {FactKind.SUCCEEDED: 1, FactKind.FAILED: 2, FactKind.DEAD_LETTERED: 4}
_FACT_NUMBER = 1 << 20  # a fact's number holds its row, the size of the row, and the place in it
NO_SETTLEMENTS: tuple[list[Any], ...] = ([],) * 11
_MOST_CLAIMS = 2**31 - 1  # then the numbers start again: only the last number of a hand is compared
_NO_CLAIM: tuple[Any, ...] = (None, 0, 0, [], 0, None, None, None)


def stored_job(row: Row, definition: JobDefinition) -> StoredJob:
    """A job that exists."""
    return StoredJob(
        definition, row["revision"], row["owner"], row["paused"], row["next_due"], row["decided"], row["queued"],
        row["running"], row["last_attempt_at"], row["last_success_at"], row["last_failure_at"],
    )  # fmt: skip


def why_unreadable_job(row: Row) -> str | None:
    """The name of a job and why it cannot be decoded; None if it can."""
    try:
        read(row["body"], row["payload"])
    except Exception as error:
        return f"{row['job_id']!r} in scope {row['scope_id']!r}: its definition {why_unreadable(error)}"
    return None


def settlement_columns(batch: Sequence[Settlement]) -> tuple[list[Any], ...]:
    """The eleven arrays of a batch of settlements; an array is empty if all have the value of a success."""
    return (
        [each.run_id for each in batch],
        [each.token for each in batch],
        _one_if_alike([each.node_id for each in batch]),
        [_STATES[each] for each in _unless_all([each.state for each in batch], RunState.SUCCEEDED)],
        [_OUTCOMES[each] for each in _unless_all([each.outcome for each in batch], AttemptOutcome.SUCCEEDED)],
        [_fact_bits(each) for each in _unless_all([each.facts for each in batch], (FactKind.SUCCEEDED,))],
        _unless_all([each.error for each in batch], None),
        _unless_all([each.reason for each in batch], None),
        _unless_all([each.records_processed for each in batch], None),
        _unless_all([each.wait for each in batch], None),
        _unless_all([each.only_if_expired for each in batch], False),
    )


def trigger_columns(batch: Sequence[NewRun]) -> tuple[list[Any], ...]:
    """The twelve arrays of a batch of triggers: one entry where all are alike, none where no trigger has a value."""
    keys = [each.idempotency_key for each in batch if each.idempotency_key is not None]
    return (
        _one_if_alike([each.key.scope_id for each in batch]),
        [each.key.job_id for each in batch],
        [each.run_id for each in batch],
        [each.value for each in _one_if_alike([each.cause for each in batch])],
        _one_if_alike([each.lane_limit for each in batch]),
        _unless_all([each.payload for each in batch], None),
        _unless_all([each.delay for each in batch], None),
        _unless_all([each.replay_of for each in batch], None),
        _unless_all([each.depth for each in batch], 0),
        _unless_all([handlers_text(each) for each in batch], None),
        [key.key for key in keys],
        [key.ttl for key in keys],
    )


def handlers_text(new: NewRun) -> str | None:
    """The handlers that a trigger's job may belong to, joined by a character that no name contains (ID-1)."""
    return None if new.handler_names is None else "\x1f".join(new.handler_names)


def _one_if_alike(column: list[Any]) -> list[Any]:
    return _unless_all(column, column[0]) or column[:1]


def _unless_all(column: list[Any], usual: object) -> list[Any]:
    return [] if column.count(usual) == len(column) else column


@cache
def _fact_bits(facts: tuple[FactKind, ...]) -> int:
    return sum(_FACT_BITS[kind] for kind in facts)


def claim_arguments(request: ClaimRequest | None) -> tuple[Any, ...]:
    """The eight arguments of a claim, empty if there is none."""
    if request is None:
        return _NO_CLAIM
    queues = request.queues
    number = request.number and 1 + (request.number - 1) % _MOST_CLAIMS
    return (
        request.node_id, request.hand, number, list(request.handlers), request.limit, request.lease,
        None if queues is None else list(queues), None if queues is None else list(queues.values()),
    )  # fmt: skip


def claims(row: Row, definitions: Found, request: ClaimRequest) -> list[Claim]:
    """The runs that one row of an exchange hands over, or the lease in it; what it leaves out is in the request."""
    if not definitions.unreadable:
        with suppress(Exception):
            return _claims(row, definitions, request, read_event, _CAUSES.__getitem__)
    return _salvaged_claims(row, definitions, request)


def _claims(
    row: Row,
    definitions: Found,
    request: ClaimRequest,
    event_of: Callable[[str | None], Event | None],
    cause_of: Callable[[str], Cause],
) -> list[Claim]:
    (_, started_at, _, _, _, run_ids, numbers, payloads, causes, attempts, tokens, firsts, dues, events, depths, queues,
     _, _, is_missing, node_id, lease_until) = row  # fmt: skip
    none = repeat(None)
    node_id, lease_until = node_id or request.node_id, lease_until or started_at + request.lease
    columns = zip(
        run_ids, map(definitions.__getitem__, numbers), payloads or none, causes, attempts or repeat(1), tokens,
        firsts or repeat(started_at), dues or none, events or none, depths or repeat(0),
        queues if len(queues) > 1 else repeat(queues[0]), strict=False,  # the shortest ones are columns
    )  # fmt: skip
    return [
        Claim(
            JobKey(definition.scope_id, definition.job_id), run_id, definition,
            definition.payload if payload is None else payload, cause_of(cause), attempt, token, started_at, first,
            lease_until, due, event_of(event), depth, queue, node_id, is_missing,
        )
        for run_id, definition, payload, cause, attempt, token, first, due, event, depth, queue in columns
    ]  # fmt: skip


def _salvaged_claims(row: Row, definitions: Found, request: ClaimRequest) -> list[Claim]:
    """The same where something cannot be decoded: each run of which that is true says so (SAFE-1)."""
    made = _claims(row, definitions, request, lambda _: None, lambda cause: _CAUSES.get(cause, Cause.MANUAL))
    causes, events = row["causes"], row["events"] or repeat(None)
    for claim, number, cause, event in zip(made, row["definitions"], causes, events, strict=False):
        problems = [definitions.unreadable[number]] if number in definitions.unreadable else []
        if cause not in _CAUSES:
            problems.append("its cause is unknown")
        try:
            claim.event = read_event(event)
        except Exception as error:
            problems.append(f"its event {why_unreadable(error)}")
        claim.unreadable = f"the stored run cannot be read: {'; '.join(problems)}" if problems else None
    return made


def run(row: Row) -> JobRun:
    """A run of any state, from one of the views. What cannot be decoded is left out, and `reason` says so (SAFE-1)."""
    try:
        return _run(row, RunState(row["state"]), _CAUSES[row["cause"]], tuple(_attempts(row)), row["reason"])
    except Exception as error:
        state = RunState(row["state"]) if row["state"] in _STATES.values() else RunState.DEAD
        reason = f"the stored run {why_unreadable(error)}"
        return _run(row, state, _CAUSES.get(row["cause"], Cause.MANUAL), (), reason)


def _run(row: Row, state: RunState, cause: Cause, attempts: tuple[Attempt, ...], reason: str | None) -> JobRun:
    return JobRun(
        run_id=row["run_id"],
        job_id=row["job_id"],
        scope_id=row["scope_id"],
        handler_name=row["handler"],
        state=state,
        cause=cause,
        due=row["due"],
        event_id=row["event_id"],
        replay_of=row["replay_of"],
        covers_from=row["covers_from"],
        covers_to=row["covers_to"],
        missed_count=row["missed_count"],
        queued_at=row["queued_at"],
        started_at=row["first_started_at"],
        ended_at=row["ended_at"],
        next_attempt_at=row["next_attempt_at"],
        attempt=row["attempt"],
        attempts=attempts,
        error=row["error"],
        reason=reason,
        records_processed=row["records"],
        node_id=attempts[-1].node_id if attempts else None,
    )


def _attempts(row: Row) -> Iterable[Attempt]:
    if row["earlier"] is not None:
        for number, started, ended, outcome, error, node_id, token in json.loads(row["earlier"]):
            yield Attempt(number, _instant(started), _instant(ended), AttemptOutcome(outcome), error, node_id, token)
    if row["state"] == "running":
        yield Attempt(row["attempt"], row["started_at"], None, None, None, row["node_id"], row["token"])
    elif row["outcome"] is not None:
        outcome = AttemptOutcome(row["outcome"])
        yield Attempt(
            row["attempt"], row["started_at"], row["ended_at"], outcome, row["error"], row["node_id"], row["token"]
        )


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def facts(row: Row, definitions: Mapping[int, JobDefinition]) -> Iterator[Fact]:
    """The facts of a row of the outbox that were not told yet."""
    (number, _, at, revision, kind, told, size, _, numbers, run_ids, attempts, depths, causes, dues, starts, next_ats,
     records, errors) = row  # fmt: skip
    none = repeat(None)
    first = _first_number(number, size)
    columns = zip(
        count(1), numbers, run_ids or none, attempts or repeat(0), depths or repeat(0), causes or none, dues or none,
        starts or repeat(at if kind == "JobTriggered" else None), next_ats or none, records or none, errors or none,
    )  # fmt: skip
    for place, definition, run_id, attempt, depth, cause, due, started_at, next_at, records_processed, error in columns:
        if place not in told:
            yield Fact(
                first + place, _KINDS[kind], at, definitions[definition], run_id, attempt, revision,
                None if cause is None else _CAUSES[cause], due, started_at, error, next_at, records_processed, depth,
            )  # fmt: skip


def facts_of_claims(
    number: int, kind: FactKind, at: datetime, claims: Sequence[Claim], records: Iterable[int | None]
) -> list[Fact]:
    """The facts of a row that this backend wrote itself, without reading it."""
    seq = _first_number(number, len(claims))
    return [
        Fact(
            seq + place, kind, at, claim.definition, claim.run_id, claim.attempt, 0, claim.cause, claim.due,
            claim.started_at, None, None, records_processed, claim.depth + 1,
        )
        for place, claim, records_processed in zip(count(1), claims, records)
    ]  # fmt: skip


def _first_number(row: int, size: int) -> int:
    return _FACT_NUMBER * (_FACT_NUMBER * row + size)


def told_columns(seqs: Iterable[int]) -> tuple[list[int], list[int], list[int]]:
    """Rows of the outbox that were told as a whole; then the rows and places of single facts."""
    places: dict[int, set[int]] = {}
    for seq in seqs:
        places.setdefault(seq // _FACT_NUMBER, set()).add(seq % _FACT_NUMBER)
    whole: list[int] = []
    single: list[tuple[int, int]] = []
    for row, told in places.items():
        number, size = divmod(row, _FACT_NUMBER)
        if len(told) == size:
            whole.append(number)
        else:
            single += [(number, place) for place in told]
    return whole, [number for number, _ in single], [place for _, place in single]


def place_of(seq: int) -> tuple[int, int]:
    """The row of the outbox that holds a fact, and its place there."""
    return seq // _FACT_NUMBER**2, seq % _FACT_NUMBER


def decisions(found: Iterable[Row]) -> list[Decision]:
    """Recorded decisions, without those that cannot be decoded (SAFE-1)."""
    return [
        Decision(DecisionKind(row["kind"]), row["first_at"], row["last_at"], row["count"], row["run_id"], row["detail"])
        for row in found
        if row["kind"] in _DECISION_KINDS
    ]


def node(row: Row) -> NodeInfo:
    """A node as it last reported itself."""
    return NodeInfo(
        row["node_id"], frozenset(row["handlers"]), row["slots"], row["running"], row["host"], row["pid"], row["lease"],
        row["started_at"], row["seen_at"], row["steady_since"],
    )  # fmt: skip


def firings(batch: Sequence[Firing]) -> str:
    """A batch of firings as JSON, in order."""
    return json.dumps([_firing(number, each) for number, each in enumerate(batch)])


def _firing(number: int, each: Firing) -> dict[str, Any]:
    covers = each.covers or (None, None)
    return {
        "n": number,
        "scope": each.key.scope_id,
        "job": each.key.job_id,
        "revision": each.revision,
        "expected_due": _text(each.expected_due),
        "decided": _text(each.decided),
        "next_due": _text(each.next_due),
        "run_id": None if each.run_id is None else str(each.run_id),
        "due": _text(each.due),
        "first": _text(each.first),
        "count": each.count,
        "covers_from": _text(covers[0]),
        "covers_to": _text(covers[1]),
        "missed_count": each.missed_count,
        "queues_behind": each.queues_behind,
        "coalesced": None if each.coalesced is None else [to_dict(each.coalesced)],
        "decisions": [to_dict(decision) for decision in each.decisions],
    }


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()
