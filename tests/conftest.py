"""Settings that every test shares."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is not a failing test: no example has a time limit.
settings.register_profile("rota", deadline=None, print_blob=True)
settings.load_profile("rota")
