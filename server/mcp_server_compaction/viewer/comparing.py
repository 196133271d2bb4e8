"""Policies compared on a session: begun by a form, watched while it runs, one at a time."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

import anyio
from anyio import to_thread
from context_compaction.archive import Archive, SessionInfo
from context_compaction.errors import CompactionError, NotFoundError, QueryError
from context_compaction.messages.model import JsonObject
from context_compaction.policies import POLICIES, policy_named
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import Response

from mcp_server_compaction.compare.comparison import PolicyRow
from mcp_server_compaction.viewer.web import Page, Visit, redirect

# A replay takes the time of each call of the model: longer sessions are for the command line.
MOST_MESSAGES = 4_000
PRICE_USD = 3.0
_PRESET = ("default", "economy")


@dataclass(slots=True)
class Comparison:
    """One comparison, while it runs and when it is done.

    Attributes:
        tenant: The tenant of the session.
        session_id: The session.
        names: The policies.
        window: The context window, in tokens; 0 until it is known.
        share: How much is done, up to 1.
        step: What is being done.
        rows: Its results.
        problem: Why there are none.
        is_over: Whether nobody waits for it any more.
    """

    tenant: str
    session_id: str
    names: tuple[str, ...]
    window: int = 0
    share: float = 0.0
    step: str = ""
    rows: Sequence[PolicyRow] = field(default=())
    problem: str = ""
    is_over: bool = False

    @property
    def is_running(self) -> bool:
        """Whether it is still under way."""
        return not (self.rows or self.problem or self.is_over)


class _OverError(Exception):
    """Nobody waits for the comparison any more."""


@contextlib.asynccontextmanager
async def comparisons(app: Starlette) -> AsyncGenerator[None]:
    """Room for one comparison, which is given up when the viewer ends."""
    app.state.comparison = None
    try:
        yield
    finally:
        if app.state.comparison is not None:
            app.state.comparison.is_over = True


async def comparison(visit: Visit) -> Page:
    """`/compare?session=ID`: the form, the progress, or the results."""
    wanted = visit.query.get("session", "")
    info = await visit.archive.session_info(wanted) if wanted else None
    job: Comparison | None = visit.request.app.state.comparison
    if job is not None and (job.tenant, job.session_id) != (visit.archive.tenant, wanted):
        job = None
    document: JsonObject = {"session_id": wanted or None, "policies": list(POLICIES)}
    html = Markup("")
    note = ""
    if job is not None:
        document["comparison"] = {
            "policies": list(job.names),
            "context_window": job.window,
            "done_share": job.share,
            "problem": job.problem or None,
            "rows": [asdict(row) for row in job.rows],
        }
    if job is not None and job.rows:
        from mcp_server_compaction.compare.page import body, note_of, tables_of

        html = Markup(body(job.rows, tables_of(job.rows)))  # noqa: S704, it escapes
        note = note_of(job.rows[0], PRICE_USD, job.window)
    is_part = visit.query.get("part") == "progress"
    return Page(
        "compare_progress.html" if is_part else "compare.html",
        document,
        {
            "info": info,
            "job": job,
            "html": html,
            "note": note,
            "names": tuple(POLICIES),
            "preset": job.names if job else _PRESET,
        },
    )


async def begin(visit: Visit) -> Response:
    """Begin a comparison; its page shows the progress.

    Raises:
        QueryError: Another one runs, no policy was chosen, or the session is too long.
    """
    form = await visit.form()
    info = await visit.archive.session_info(form.get("session", [""])[0])
    names = tuple(form.get("policy", ()))
    for name in names:
        policy_named(name)
    if not names:
        raise QueryError("Choose at least one policy to compare.")
    state = visit.request.app.state
    if state.comparison is not None and state.comparison.is_running:
        raise QueryError("Another comparison runs. Wait until it is done.")
    window = _window(form.get("window", [""])[0])
    job = Comparison(visit.archive.tenant, info.session_id, names, window)
    messages, format = await _messages(visit.archive, info)
    state.comparison = job
    answer = redirect(f"/compare?session={info.session_id}")
    answer.background = BackgroundTask(_run, job, messages, format, visit.config.model)
    return answer


async def _messages(archive: Archive, info: SessionInfo) -> tuple[list[JsonObject], str]:
    """The newest branch and its format, without what compactions made of it."""
    branches, _ = await archive.branches(info.session_id, limit=1)
    seqs = branches[0].seqs if branches else ()
    if not seqs:
        raise NotFoundError(f"Session {info.session_id} holds no messages to compare policies on.")
    if len(seqs) > MOST_MESSAGES:
        raise QueryError(
            f"Session {info.session_id} has {len(seqs):,} messages; this page compares on up to "
            f"{MOST_MESSAGES:,}. Export it, and use the command `compare`."
        )
    found = await archive.read_messages(
        info.session_id, min(seqs), max(seqs), head=branches[0].head
    )
    return [message.raw for message in found], info.format


async def _run(
    job: Comparison, messages: Sequence[JsonObject], format: str, model: str | None
) -> None:
    """Compare in a thread with a loop of its own: replays would hold up the pages."""

    def work() -> list[PolicyRow]:
        return anyio.run(partial(_compare, job, messages, format, model))

    try:
        job.rows = await to_thread.run_sync(work, abandon_on_cancel=True)
    except (CompactionError, OSError) as error:
        job.problem = str(error)
    except _OverError:
        job.problem = "The viewer ended."
    finally:
        job.is_over = True


async def _compare(
    job: Comparison, messages: Sequence[JsonObject], format: str, model: str | None
) -> list[PolicyRow]:
    from context_compaction import formats
    from context_compaction.request import CompactRequest
    from context_compaction.tokens.counter import counter_for

    from mcp_server_compaction.compare.comparison import compare

    async def report(share: float, step: str) -> None:
        if job.is_over:
            raise _OverError
        job.share, job.step = share, step

    if not job.window:
        tokens = counter_for(model).messages(formats.parse(messages, format=format))
        job.window = max(1_000, tokens // 2)
    request = CompactRequest(
        format=format, model=model, context_window=job.window, summarizer="extractive"
    )
    return await compare(messages, request, job.names, PRICE_USD, report)


def _window(text: str) -> int:
    if not text.strip():
        return 0
    if not (text.isascii() and text.isdigit() and 3 < len(text) <= 9):
        raise QueryError(f"window is {text[:40]!r}. Give tokens, 1000 or more.")
    return int(text)
