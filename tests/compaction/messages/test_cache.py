"""What is remembered across calls, and by threads that ask for it at once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from context_compaction.messages.cache import run_once


def test_what_is_loaded_once_is_loaded_by_one_of_the_threads_that_ask_for_it() -> None:
    loads: list[object] = []
    two_at_once = threading.Barrier(2)

    def load() -> object:
        loads.append(object())
        with suppress(threading.BrokenBarrierError):
            two_at_once.wait(timeout=0.2)  # passed at once where two are in here
        return loads[-1]

    get = run_once(load)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(get) for _ in range(8)]
    found = [one.result() for one in asked]
    assert found == loads * 8
    assert len(loads) == 1
