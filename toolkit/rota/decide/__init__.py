"""Pure decisions: without a store; time and random numbers are passed in."""

from __future__ import annotations
