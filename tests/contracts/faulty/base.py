"""What a fault is, and the ways to build one.

```
class KeyNeverEnds(InProcessBackend): ...

class Forgetful(Wrapped): ...

FAULTS = [
    Fault("a key never ends", "KEY-2", ("KEY-2/test_...",), on(KeyNeverEnds)),  # a faulty backend
    Fault("pause forgets", "PAUSE-1", ("PAUSE-1/test_...",), nodes(Forgetful)),  # a faulty scheduler
    Fault("grace ignored", "CRON-7", ("CRON-7/test_...",), patch=replaced(planning, "owed", wrong)),  # a pure function
]
```
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Any, cast
from unittest.mock import patch as mock_patch

from attrs import field, frozen

from rota.clock import Clock
from rota.model.capability import Capability
from rota.protocol import JobScheduler
from rota_backends.cas import CasStore
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.records import Lane
from rota_contracts import BackendHarness, Harness

MakeHarness = Callable[[], Harness | CasStore]  # a store for clauses about the primitives
Patch = Callable[[], AbstractContextManager[Any]]


def on(backend: Callable[..., Any], **options: Any) -> MakeHarness:
    """The harness of a faulty backend: its class, and options of its constructor besides the clock."""
    return lambda: BackendHarness(lambda clock: backend(clock=clock, **options))


healthy: MakeHarness = on(InProcessBackend)


class Kept(InProcessBackend):
    """In-process, and yet it survives: what a durable backend looks like to the pack."""

    capabilities = InProcessBackend.capabilities | Capability.DURABLE


def reopened(lose: Callable[[Any], object] = lambda store: None, kept: Callable[..., Any] = Kept) -> MakeHarness:
    """The harness of a durable store that loses something each time it is reopened."""

    def make() -> Harness:
        stores: list[Any] = []

        def first(clock: Clock | None) -> Any:
            stores.append(kept(clock=clock))
            return stores[0]

        def again(clock: Clock | None) -> Any:
            lose(stores[0])
            return stores[0]

        return BackendHarness(first, reopen=again)

    return make


@frozen
class Fault:
    """`clauses` are the ids of those that must fail on it; at least one is of `rule`."""

    name: str
    rule: str
    clauses: tuple[str, ...]
    harness: MakeHarness = field(default=healthy, repr=False)
    patch: Patch = field(default=nullcontext, repr=False)


def of(rule: str, *tests: str) -> tuple[str, ...]:
    """The ids of several clauses of one rule."""
    return tuple(f"{rule}/{test}" for test in tests)


def unmarked() -> AbstractContextManager[Any]:
    """A patch: the store does not look at its mark of decided instants when a job changes."""
    return mock_patch.object(Lane, "has_decided", lambda lane, *instants: False)


def replaced(target: Any, name: str, wrong: Any) -> Patch:
    """While the clause runs, `target.name` is `wrong`."""
    return lambda: mock_patch.object(target, name, wrong)


def everywhere(function: Any, wrong: Any) -> Patch:
    """While the clause runs, `wrong` stands for `function` in every module of the toolkit that uses it."""

    def patch() -> AbstractContextManager[None]:
        users = [module for name, module in sys.modules.items() if name.partition(".")[0] == "rota"]
        named = [(module, name) for module in users for name, value in vars(module).items() if value is function]
        return all_of(*(replaced(module, name, wrong) for module, name in named))()

    return patch


def rewritten(function: Any, wrong: Any) -> Patch:
    """While the clause runs, `function` does what `wrong` does, also where the checks of a class hold it."""

    @contextmanager
    def patch() -> Generator[None, None, None]:
        right, function.__code__ = function.__code__, wrong.__code__
        try:
            yield
        finally:
            function.__code__ = right

    return patch


def all_of(*patches: Patch) -> Patch:
    """Several patches that make one fault."""

    @contextmanager
    def together() -> Generator[None, None, None]:
        with ExitStack() as stack:
            for each in patches:
                stack.enter_context(each())
            yield

    return together


def nodes(wrap: Callable[[Any], Any], make: MakeHarness = healthy) -> MakeHarness:
    """A harness whose nodes are seen through `wrap`, which takes a scheduler and gives a faulty one."""
    return lambda: cast("Harness", _WrappedNodes(cast("Harness", make()), wrap))


class Wrapped:
    """A scheduler seen through another: subclass it and override what is to be wrong; `self.node` is the real one."""

    def __init__(self, node: Any) -> None:
        self.node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self.node, name)

    async def __aenter__(self) -> Any:
        return await self.node.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self.node.__aexit__(*error)


class _WrappedNodes:
    """Everything the inner harness is, with wrapped nodes."""

    def __init__(self, inner: Harness, wrap: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._wrap = wrap
        self._real: dict[int, JobScheduler] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, handlers: Any, **options: Any) -> AbstractAsyncContextManager[Any]:
        return self._opened(self._inner.open(handlers, **options))

    @asynccontextmanager
    async def _opened(self, opening: AbstractAsyncContextManager[JobScheduler]) -> AsyncGenerator[Any, None]:
        async with opening as node:
            wrapped = self._wrap(node)
            self._real[id(wrapped)] = node
            yield wrapped

    async def crash(self, node: Any) -> None:
        await self._inner.crash(self._real[id(node)])

    def freeze(self, node: Any) -> AbstractContextManager[None]:
        return self._inner.freeze(self._real[id(node)])
