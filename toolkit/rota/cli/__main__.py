"""`python -m rota.cli`."""

from __future__ import annotations

from rota.cli import main

if __name__ == "__main__":
    main()
