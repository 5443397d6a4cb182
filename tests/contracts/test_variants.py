"""Legal variants pass the whole pack: it assumes no more than the rules say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from rota_backends.inprocess import occurrences
from rota_contracts import BackendHarness, Harness, SchedulerContract
from tests.contracts.variants.bare import BareHarness
from tests.contracts.variants.claiming import LastFirst, OneAtATime, SlowRescue
from tests.contracts.variants.identity import OwnIds, TokensWithGaps, random_event_run_id
from tests.contracts.variants.passing import Distant
from tests.contracts.variants.promising import SmallPayloads, kept
from tests.contracts.variants.telling import LateEvents, RepeatedEvents
from tests.contracts.variants.timing import Milliseconds, WholeSeconds, WrongNodes
from tests.contracts.variants.waking import Nervous, PollOnly
from tests.contracts.variants.wording import OtherWords


def on(backend: Callable[..., Any]) -> Harness:
    return BackendHarness(lambda clock: backend(clock=clock))


class TestOwnIds(SchedulerContract):
    backend = "variant: ids of the store's own"

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
    backend = "variant: durable, to the second, large payloads"

    @pytest.fixture
    def harness(self) -> Harness:
        return kept()


class TestTokensWithGaps(SchedulerContract):
    backend = "variant: tokens with gaps"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(TokensWithGaps)


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


class TestNervous(SchedulerContract):
    backend = "variant: spurious wake-ups"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(Nervous)


class TestLastFirst(SchedulerContract):
    backend = "variant: the last one ready starts first"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(LastFirst)


class TestOneAtATime(SchedulerContract):
    backend = "variant: one at a time"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(OneAtATime)


class TestSlowRescue(SchedulerContract):
    backend = "variant: slow rescues"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(SlowRescue)


class TestMilliseconds(SchedulerContract):
    backend = "variant: milliseconds"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(Milliseconds)


class TestWholeSeconds(SchedulerContract):
    backend = "variant: whole seconds"

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


class TestSmallPayloads(SchedulerContract):
    backend = "variant: small payloads"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(SmallPayloads)


class TestOtherWords(SchedulerContract):
    backend = "variant: other words"

    @pytest.fixture
    def harness(self) -> Harness:
        return on(OtherWords)


