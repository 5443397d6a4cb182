"""`make test` holds every kind of backend to the contract once; `make conformance` runs the longer ones too."""

from __future__ import annotations

import os

collect_ignore = (
    []
    if os.environ.get("ROTA_CONFORMANCE")
    else [
        "test_cas.py",
        "test_etcd.py",
        "test_postgres_further.py",
        "test_postgres_pooler.py",
        "test_sqlite_further.py",
    ]
)
