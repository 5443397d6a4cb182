"""The value of `H` (CRON-12): derived from the job's name, the same on every node and for ever.

SHA-256 over the UTF-8 bytes of field name, scope id and job id, joined by NUL (no name contains one); the first eight
bytes as a big-endian number, modulo the number of values. So the values of `H` in two fields are independent.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple


class Seed(NamedTuple):
    """The job from whose name the values are derived."""

    scope_id: str
    job_id: str

    def pick(self, part: str, size: int) -> int:
        """A number from 0 to `size` - 1 for one field of the expression."""
        digest = sha256("\x00".join((part, self.scope_id, self.job_id)).encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % size
