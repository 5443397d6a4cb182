"""A pack of a few clauses and a scheduler made of nothing, for testing the machinery of the pack with pytester.

The real families and `BackendHarness` are left out: what is tested here is how clauses are chosen, run and judged.
"""

from __future__ import annotations

# Replaces the families of the real pack; pytester puts the modules back afterwards.
CONFTEST = """
from __future__ import annotations

import sys
import types

from rota_contracts.clause import Level, clause
from rota.model.capability import Capability


class Toys:
    @clause("TOY-1", "a node can be opened", uses=())
    async def test_a_node_opens(self, scene):
        async with scene.open(handlers={}, events=None) as node:
            assert node.breaks != "core", "the core is broken"

    @clause("TOY-2", "two nodes agree", level=Level.NODES)
    async def test_two_nodes_agree(self, scene):
        async with scene.open(handlers={}, events=None) as one, scene.open(handlers={}, events=None) as two:
            assert one.breaks != "nodes" and two.breaks != "nodes", "they do not agree"

    @clause("TOY-2", "two nodes talk", level=Level.NODES)
    async def test_two_nodes_talk(self, scene):
        async with scene.open(handlers={}, events=None) as one:
            assert one.breaks not in ("nodes", "talk")

    @clause("TOY-3", "the store survives", level=Level.DURABLE)
    async def test_the_store_survives(self, scene):
        await scene.reopen()

    @clause("TOY-4", "seconds are honoured", needs=Capability.SECOND_PRECISION)
    async def test_seconds_are_honoured(self, scene):
        pass

    @clause("TOY-4", "seconds are refused", lacks=Capability.SECOND_PRECISION)
    async def test_seconds_are_refused(self, scene):
        pass

    @clause("TOY-5", "an outage is ridden out", level=Level.NODES, uses=("outage",))
    async def test_an_outage_is_ridden_out(self, scene):
        with scene.outage():
            pass

    @clause("TOY-6", "two processes share the store", level=Level.DISTRIBUTED)
    async def test_two_processes_share_the_store(self, scene):
        pass


families = types.ModuleType("rota_contracts.families")
families.FAMILIES = (Toys,)
sys.modules.pop("rota_contracts.contract", None)
sys.modules["rota_contracts.families"] = families
"""

HARNESS = """
from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

from rota.model.capability import Capability


class Node:
    def __init__(self, breaks):
        self.breaks = breaks


class ToyHarness:
    resolution = timedelta(microseconds=1)
    max_payload = 1024
    virtual = True

    def __init__(self, capabilities=Capability(0), breaks=None, elsewhere=None):
        self.capabilities = capabilities
        self.breaks = breaks
        self.elsewhere = elsewhere
        self.closed = False

    @asynccontextmanager
    async def open(self, handlers, **options):
        yield Node(self.breaks)

    async def advance(self, delta):
        pass

    async def crash(self, node):
        pass

    async def close(self):
        self.closed = True


async def late():
    return ToyHarness()


class TroubleHarness(ToyHarness):
    @contextmanager
    def outage(self):
        yield

    async def reopen(self):
        pass
"""

SUBJECT = """
from __future__ import annotations

import pytest

from rota.model.capability import Capability
from rota_contracts.contract import SchedulerContract
from toys import Node, ToyHarness, TroubleHarness, late


class TestToy(SchedulerContract):
    backend = "toy"
    {body}

    @pytest.fixture
    def harness(self):
        return {harness}
"""
