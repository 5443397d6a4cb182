"""Measures one entry once, in this process: python -m tests.benchmarks.one ENTRY MEASURE SETTINGS, JSON to stdout."""

from __future__ import annotations

import json
import sys
from importlib import import_module

if __name__ == "__main__":
    entry, measure, settings = sys.argv[1:]
    module = import_module(f"tests.benchmarks.entries.{entry}")
    sys.stdout.write(json.dumps(getattr(module, measure)(**json.loads(settings))))
