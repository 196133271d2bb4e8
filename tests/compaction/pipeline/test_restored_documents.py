"""A document that the kept messages do not show in full is restored in full, once."""

import json

import anyio
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.promises import check_promises, temporary_archive
from tests.support.small import answered, assistant, lines, user

DESIGN = "docs/design.md"


def clause(number: int) -> str:
    return f"Clause {number:03}: the gate of sort {number * 7} closes before its signal does."


def session(clauses: int, later_calls: int) -> list[Json]:
    """Return work in which a design is written and edited before many other calls."""
    text = "\n".join(["Status: Draft", *map(clause, range(clauses))])
    earlier = [
        message
        for n in range(12)
        for message in (user(f"Look at part {n}."), assistant(lines(f"Part {n} says", 60)))
    ]
    edit = {"old_str": "Status: Draft", "new_str": "Status: Open"}
    return [
        *earlier,
        user("Write a short design first."),
        *answered("d", "create", f"Created file {DESIGN}", path=DESIGN, file_text=text),
        *answered("e", "edit", f"File {DESIGN} updated.", path=DESIGN, **edit),
        *answered("g", "bash", "[dev d62] design", command='git commit -m "design" docs'),
        *[
            message
            for n in range(later_calls)
            for message in answered(f"c{n}", "bash", lines(f"gate {n}", 40), command=f"./gate {n}")
        ],
        assistant("The design is complete. Its review is next."),
    ]


async def compacted(payload: list[Json], target_tokens: int) -> CompactResult:
    request = CompactRequest(format="anthropic", target_tokens=target_tokens, mode="full")
    async with temporary_archive() as archive:
        return await check_promises(payload, request, archive)


@settings(max_examples=10, deadline=None)
@given(
    clauses=st.integers(min_value=20, max_value=60),
    later_calls=st.integers(min_value=0, max_value=12),
    target_tokens=st.integers(min_value=8_000, max_value=12_000),
)
@example(clauses=60, later_calls=6, target_tokens=10_000)
def test_newest_document_is_restored_whole_and_once(
    clauses: int, later_calls: int, target_tokens: int
) -> None:
    payload = session(clauses, later_calls)
    result = anyio.run(compacted, payload, target_tokens)
    text = json.dumps(result.messages)
    counts = [text.count(clause(n)) for n in range(clauses)]
    assert all(counts)
    # The kept call that wrote the document shows its first clauses, too.
    assert sum(counts) <= clauses + 2
    assert "Status: Open" in text
