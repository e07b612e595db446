"""Runs a module of NVIDIA FLARE for as long as whoever started it lives: `python -m … MODULE ARGUMENT …`.

Its standard input is a pipe that nobody writes to. When that ends, the other side has gone, however it went.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from contextlib import suppress

import psutil


def _end_when_left_alone() -> None:
    os.read(sys.stdin.fileno(), 1)
    own = psutil.Process()
    for one in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            one.kill()
    os.kill(own.pid, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_when_left_alone, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
