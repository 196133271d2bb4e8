"""Markup in a transcript is shown as text and never becomes part of a page."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from context_compaction.archive.opening import open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from mcp_server_compaction.config import Config

from tests.server.viewer.site import Site, running_site
from tests.support.markup_attacks import HOST, PAYLOADS, attacked_messages

GROUP = 25

_TAGS = frozenset(re.findall(r"\w+", """
    html head meta title link script body a header nav main h1 h2 h3 h4 h5 h6 p form label input
    select option button ul ol li div span time code pre b strong em s i kbd footer section
    article aside details summary table thead tbody tfoot tr th td blockquote br hr img svg rect
    line polygon figure figcaption noscript mark text circle path fieldset legend progress
"""))  # fmt: skip
_OWN_SCRIPTS = {"/static/htmx.min.js", "/static/viewer.js"}


class _MarkupChecker(HTMLParser):
    """Parser that collects elements and attributes that the viewer never writes."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag not in _TAGS:
            self.found.append(f"<{tag}>")
        self.found += [f"{tag} {name}" for name in attributes if name.startswith("on")]
        if "style" in attributes or "srcdoc" in attributes:
            self.found.append(f"{tag} style")
        if tag == "script" and attributes.get("src") not in _OWN_SCRIPTS:
            self.found.append(f"script {attributes}")
        if tag in ("link", "meta") and HOST in str(attributes):
            self.found.append(f"{tag} {attributes}")
        if tag == "img" and not attributes.get("src", "").startswith("data:image/png;base64,"):
            self.found.append(f"img {attributes}")
        self.found += [
            f"{tag} {name}={v[:60]}" for name, v in attributes.items() if _is_foreign(name, v)
        ]


def _is_foreign(name: str, value: str) -> bool:
    if name in ("href", "action", "src", "formaction", "hx-get", "hx-post"):
        return not value.startswith((
            "/",
            "#",
            "?",
            "data:image/png;base64,",
            "http://",
            "https://",
        ))
    if name.startswith(("hx-", "data-hx-")):
        return name not in {"hx-trigger", "hx-target", "hx-swap", "hx-disable"} or HOST in value
    return False


def foreign_markup(html: str) -> list[str]:
    """Return the elements and attributes of a page that can only come from a transcript."""
    checker = _MarkupChecker()
    checker.feed(html)
    checker.close()
    return checker.found


def groups() -> Iterator[tuple[int, tuple[str, ...]]]:
    for start in range(0, len(PAYLOADS), GROUP):
        yield start, PAYLOADS[start : start + GROUP]


async def fill_attacked(config: Config, payloads: tuple[str, ...]) -> str:
    """Archive and compact a session with the payloads, pin some, and return the session ID."""
    raws = [m for n, text in enumerate(payloads) for m in attacked_messages(text, n)]
    async with open_archive(config.archive) as archive:
        request = CompactRequest(
            session_id="attacked", mode="full", format="anthropic", pinned=payloads[:8],
            settings={"min_result_tokens": 1, "min_savings_tokens": 1},
        )  # fmt: skip
        result = await compact([*raws, {"role": "user", "content": "on"}], request, archive=archive)
        assert result.changed, result.warnings
    return "attacked"


async def pages_of(site: Site, session_id: str) -> list[str]:
    """Return the addresses of all pages that show content of the session."""
    count = (await site.json(f"/sessions/{session_id}"))["message_count"]
    addresses = [
        "/", f"/?q={quote(PAYLOADS[0])}",
        "/storage", "/storage?part=sizes", "/storage/prune?days=0",
        *(f"/sessions/{session_id}?at={at}" for at in (0, count - 1)),
        *(f"/sessions/{session_id}/messages/{at}-{at + 29}" for at in range(0, count, 30)),
        *(f"/sessions/{session_id}/messages/{seq}/{block}" for seq in (1, 2) for block in range(8)),
        *(f"/sessions/{session_id}/messages/2/{block}?part=body" for block in range(8)),
        *(f"/sessions/{session_id}/{page}" for page in
          ("compactions", "compactions/last", "compactions/last?part=losses", "branches",
           "context?part=counted", "export", "delete")),
        f"/search?query={quote('script alert onerror javascript')}&limit=20",
        f"/search?query={quote(PAYLOADS[3])}&kind=phrase&session_id={quote(PAYLOADS[4])}"
        f"&tool={quote(PAYLOADS[5])}",
    ]  # fmt: skip
    document = await site.json(f"/sessions/{session_id}/compactions/last")
    pointers = [p for edit in document["receipt"]["edits"] for p in edit["pointers"]]
    return addresses + [f"/outputs/{p}" for p in pointers if p.startswith("o_")][:20]


@pytest.mark.parametrize("payloads", [g for _, g in groups()], ids=[str(n) for n, _ in groups()])
async def test_pages_escape_markup_in_a_transcript(
    config: Config, payloads: tuple[str, ...]
) -> None:
    session_id = await fill_attacked(config, payloads)
    async with running_site(config) as site:
        for address in await pages_of(site, session_id):
            reply = await site.http.get(address)
            # Some messages have fewer blocks, and no session ID is an attack.
            may_fail = "/messages/" in address or "&session_id=" in address
            assert reply.status_code == 200 or may_fail, address
            assert foreign_markup(reply.text) == [], address
        exported = await site.html(f"/sessions/{session_id}/download?as=html")
    allowed = ("<style>",)
    assert [part for part in foreign_markup(exported) if part not in allowed] == []


def test_checker_finds_attacks_when_they_are_not_escaped() -> None:
    """Without this property, the test above proves nothing."""
    detected = [text for text in PAYLOADS[:50] if foreign_markup(f"<p>{text}</p>")]
    assert len(detected) >= 34  # the rest are Markdown, templates and plain addresses
