"""Legal variants pass the whole pack: it assumes no more than the rules say. No rule: all of them, clause by clause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from rota_backends.inprocess import occurrences
from rota_contracts import BackendHarness, Harness, SchedulerContract
from tests.contracts.variants.bare import BareHarness
from tests.contracts.variants.claiming import LastFirst, OneAtATime
from tests.contracts.variants.identity import OwnIds, random_event_run_id
from tests.contracts.variants.passing import Distant
from tests.contracts.variants.promising import kept
from tests.contracts.variants.talking import Talkative
from tests.contracts.variants.telling import LateEvents, RepeatedEvents
from tests.contracts.variants.timing import WholeSeconds, WrongNodes
from tests.contracts.variants.waking import PollOnly


def on(backend: Callable[..., Any]) -> Harness:
    return BackendHarness(lambda clock: backend(clock=clock))


class TestOwnIds(SchedulerContract):
    backend = "variant: ids of the store's own, tokens with gaps"

    @pytest.fixture
    def harness(self, monkeypatch: pytest.MonkeyPatch) -> Harness:
        monkeypatch.setattr(occurrences, "event_run_id", random_event_run_id)
        return on(OwnIds)


class TestBare(SchedulerContract):
    backend = "variant: a scheduler from scratch"

    @pytest.fixture
    def harness(self) -> Harness:
        return cast("Harness", BareHarness())


class TestKept(SchedulerContract):
    backend = "variant: durable, to the second, large payloads, transactions"

    @pytest.fixture
    def harness(self) -> Harness:
        return kept()


class TestLateEvents(SchedulerContract):
    backend = "variant: late events"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(LateEvents)


class TestRepeatedEvents(SchedulerContract):
    backend = "variant: repeated events"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(RepeatedEvents)


class TestPollOnly(SchedulerContract):
    backend = "variant: poll only"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(PollOnly)


class TestTalkative(SchedulerContract):
    backend = "variant: spurious wake-ups, other words"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(Talkative)


class TestLastFirst(SchedulerContract):
    backend = "variant: the last one ready starts first"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(LastFirst)


class TestOneAtATime(SchedulerContract):
    backend = "variant: one at a time, slow rescues"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(OneAtATime)


class TestWholeSeconds(SchedulerContract):
    backend = "variant: whole seconds, small payloads"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(WholeSeconds)


class TestWrongNodes(SchedulerContract):
    backend = "variant: nodes with wrong clocks"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(WrongNodes)


class TestDistant(SchedulerContract):
    backend = "variant: a distant store"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(Distant)
