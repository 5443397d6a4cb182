"""How long a test waits for what should happen at once. It costs nothing where it happens, and machines stand still."""

from __future__ import annotations

PATIENCE = 60.0  # seconds
