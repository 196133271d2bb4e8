"""Values that are loaded once per process, also by several threads."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from context_compaction.messages.cache import run_once


def test_run_once_calls_the_loader_in_one_thread() -> None:
    loads: list[object] = []
    two_at_once = threading.Barrier(2)

    def load() -> object:
        loads.append(object())
        with suppress(threading.BrokenBarrierError):
            two_at_once.wait(timeout=0.2)  # passes immediately if two threads are here
        return loads[-1]

    get = run_once(load)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(get) for _ in range(8)]
    found = [item.result() for item in asked]
    assert found == loads * 8
    assert len(loads) == 1
