"""The circuit breaker stands in the archive: a process that saw none of the failures obeys it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.messages_api import Fails, Json, Says, serve
from tests.support.messages_api import one_after_the_other as replies
from tests.support.story import SUMMARY, story

pytestmark = pytest.mark.slow

PROCESS = Path(__file__).with_name("compaction_process.py")
REFUSED = Fails(400, "invalid_request_error")
WAITING, AFTER_THE_WAIT = 900, 0


async def elsewhere(
    root: Path, url: str, messages: list[Json], *rounds: int
) -> tuple[list[Json], list[dict[str, Any]]]:
    """Compactions by one process of its own: the last list, and what came of each."""
    done = await anyio.run_process(
        [sys.executable, str(PROCESS), str(root), url],
        input=json.dumps({"messages": messages, "rounds": rounds}).encode(),
        stderr=subprocess.STDOUT,
    )
    told = json.loads(done.stdout)
    return told["messages"], told["rounds"]


@pytest.mark.timeout(240)
async def test_a_restarted_process_leaves_a_failing_model_alone_and_tries_it_once_later(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(230), serve(replies(*[REFUSED] * 4, Says(SUMMARY))) as api:
        messages, failed = await elsewhere(tmp_path, api.url, story(), WAITING, WAITING, WAITING)
        assert len(api.requests) == 3
        assert [round_["writer"] for round_ in failed] == ["extractive"] * 3

        # The restart: nothing but the archive says what happened. After the wait, which one of
        # the calls sets to nothing, a single one is let through, and it fails as well.
        grown = [*messages, *story()[1:]]
        messages, (left_alone, half_open) = await elsewhere(
            tmp_path, api.url, grown, WAITING, AFTER_THE_WAIT
        )
        assert left_alone["status"] == "compacted"
        assert left_alone["writer"] == "extractive"
        assert left_alone["model"]["requested"] is False
        assert "failed 3 times in a row" in left_alone["warnings"][-1]
        assert half_open["model"]["failure"]
        assert len(api.requests) == 4

        # That begins the wait anew, for every process; a success ends it.
        grown = [*messages, *story()[1:]]
        _, rounds = await elsewhere(tmp_path, api.url, grown, WAITING, AFTER_THE_WAIT, WAITING)
        assert [round_["model"]["requested"] for round_ in rounds] == [False, True, True]
        assert [round_["writer"] for round_ in rounds] == ["extractive", "anthropic", "anthropic"]
    assert len(api.requests) > 5
