"""Bounds on what work costs that hold on any machine: by other work that is timed beside it."""

import gc
from collections.abc import Callable
from functools import partial
from time import process_time

_TRIES = 5
_APART = 50  # more than one piece of what a text is made of


def cpu_seconds(work: Callable[[], object]) -> float:
    """What `work` takes of the processor, without the walks through what other tests left."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        began = process_time()
        work()
        return process_time() - began
    finally:
        if was_enabled:
            gc.enable()


def assert_growth(work: Callable[[int], object], size: int, *, power: int = 1) -> None:
    """`work` takes time in proportion to its size, or to that size's `power`.

    Four times as much takes twice what it should at most; a power more takes four times that.
    A busy machine only adds to what is measured: so the least of several tries counts, and those
    end with the first good ones. No size comes twice, since results are remembered in places.
    """
    work(size // 4)  # what is loaded by a first call
    shorter = longer = float("inf")
    for at in range(_TRIES):
        sizes = [size + _APART * number for number in (2 * at, 2 * at + 1)]
        shorter = min(shorter, *(cpu_seconds(partial(work, one)) for one in sizes))
        longer = min(longer, cpu_seconds(partial(work, 4 * sizes[0])))
        # Less than ten milliseconds are not told exactly everywhere.
        if longer < 2 * 4**power * shorter + 0.01:
            return
    raise AssertionError(f"{longer:.3f} s for {4 * size}, {shorter:.3f} s for {size}")
