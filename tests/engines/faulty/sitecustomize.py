"""On a site's path, makes its answers wrong in the way that the file `fault` in the site's folder says."""

import sys

if any("worker_process" in word for word in sys.orig_argv):
    import dataclasses
    import resource
    from pathlib import Path

    import jax
    import numpy as np

    from unpooled.protocol.codec import decode, encode
    from unpooled.protocol.envelope import Answered, digest, open_reply
    from unpooled.protocol.messages import Statistics
    from unpooled.site.gateway import Gateway

    answer, first = Gateway.answer, []

    def fill(ledger: Path) -> None:
        """From now on the system lets no file of this process grow beyond the ledger's end."""
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (ledger.stat().st_size, hard))

    def wrong(self: Gateway, sealed: bytes) -> bytes:
        path = self._folder.folder / "fault"
        fault = path.read_text() if path.exists() else ""
        if fault == "full":
            fill(self._folder.folder / "ledger.jsonl")
            return answer(self, sealed)
        true = answer(self, sealed)
        first.append(true)
        name = self._folder.name
        found = open_reply(true, sealed, name)
        reply = decode(found.reply)
        if not isinstance(reply, Statistics) or not fault:
            return true
        if fault == "replay":
            return first[0]
        if fault == "huge":
            return b"\0" * (2**28 + 1)  # one byte more than the relay accepts
        change = {
            "nan": lambda leaf: np.full_like(leaf, np.nan),
            "shape": lambda leaf: leaf[..., None],
        }
        moved = dataclasses.replace(reply, total=jax.tree.map(change[fault], reply.total))
        return Answered(name, digest(sealed), encode(moved), found.ledger).seal()

    Gateway.answer = wrong
