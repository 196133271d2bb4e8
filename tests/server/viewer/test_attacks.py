"""What a transcript says is shown, and never becomes a part of the page."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from context_compaction.archive.opening import open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from mcp_server_compaction.config import Config

from tests.server.viewer.site import Site, visiting
from tests.support.markup_attacks import HOST, PAYLOADS, attacked_messages

GROUP = 25

_TAGS = frozenset(re.findall(r"\w+", """
    html head meta title link script body a header nav main h1 h2 h3 h4 h5 h6 p form label input
    select option button ul ol li div span time code pre b strong em s i kbd footer section
    article details summary table thead tbody tr th td blockquote br hr img svg rect line polygon
    figure figcaption noscript mark text circle path fieldset legend progress
"""))  # fmt: skip
_OWN_SCRIPTS = {"/static/htmx.min.js", "/static/viewer.js"}


class _Checker(HTMLParser):
    """Finds what no page of ours has."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag not in _TAGS:
            self.found.append(f"<{tag}>")
        self.found += [f"{tag} {name}" for name in given if name.startswith("on")]
        if "style" in given or "srcdoc" in given:
            self.found.append(f"{tag} style")
        if tag == "script" and given.get("src") not in _OWN_SCRIPTS:
            self.found.append(f"script {given}")
        if tag in ("link", "meta") and HOST in str(given):
            self.found.append(f"{tag} {given}")
        if tag == "img" and not given.get("src", "").startswith("data:image/png;base64,"):
            self.found.append(f"img {given}")
        self.found += [f"{tag} {name}={v[:60]}" for name, v in given.items() if _leads_out(name, v)]


def _leads_out(name: str, value: str) -> bool:
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


def strange_parts(html: str) -> list[str]:
    """Elements and attributes of a page that only a transcript can have put there."""
    checker = _Checker()
    checker.feed(html)
    checker.close()
    return checker.found


def groups() -> Iterator[tuple[int, tuple[str, ...]]]:
    for start in range(0, len(PAYLOADS), GROUP):
        yield start, PAYLOADS[start : start + GROUP]


async def fill_attacked(config: Config, payloads: tuple[str, ...]) -> str:
    """A session of the payloads, compacted, with each pinned as well; its id."""
    said = [m for n, text in enumerate(payloads) for m in attacked_messages(text, n)]
    async with open_archive(config.archive) as archive:
        wish = CompactRequest(
            session_id="attacked", mode="full", format="anthropic", pinned=payloads[:8],
            settings={"min_result_tokens": 1, "min_savings_tokens": 1},
        )  # fmt: skip
        result = await compact([*said, {"role": "user", "content": "on"}], wish, archive=archive)
        assert result.changed, result.warnings
    return "attacked"


async def pages_of(site: Site, session_id: str) -> list[str]:
    """The addresses of every page that shows something of the session."""
    count = (await site.json(f"/sessions/{session_id}"))["message_count"]
    addresses = [
        "/", f"/?q={quote(PAYLOADS[0])}", "/archive", "/archive/prune?days=0",
        *(f"/sessions/{session_id}?at={at}" for at in (0, count - 1)),
        *(f"/sessions/{session_id}/messages/{at}-{at + 29}" for at in range(0, count, 30)),
        *(f"/sessions/{session_id}/messages/{seq}/{block}" for seq in (1, 2) for block in range(8)),
        *(f"/sessions/{session_id}/messages/2/{block}?part=body" for block in range(8)),
        *(f"/sessions/{session_id}/{page}" for page in
          ("compactions", "compactions/last", "branches", "context?part=counted",
           "keep", "delete")),
        f"/search?q={quote('script alert onerror javascript')}&limit=20",
        f"/search?q={quote(PAYLOADS[3])}&kind=phrase&session={quote(PAYLOADS[4])}"
        f"&tool={quote(PAYLOADS[5])}",
    ]  # fmt: skip
    document = await site.json(f"/sessions/{session_id}/compactions/last")
    pointers = [p for edit in document["receipt"]["edits"] for p in edit["pointers"]]
    return addresses + [f"/outputs/{p}" for p in pointers if p.startswith("o_")][:20]


@pytest.mark.parametrize("payloads", [g for _, g in groups()], ids=[str(n) for n, _ in groups()])
async def test_nothing_of_a_transcript_becomes_an_element_of_a_page(
    config: Config, payloads: tuple[str, ...]
) -> None:
    session_id = await fill_attacked(config, payloads)
    async with visiting(config) as site:
        for address in await pages_of(site, session_id):
            reply = await site.http.get(address)
            # Some messages have fewer blocks, and no session has an attack's name.
            may_fail = "/messages/" in address or "&session=" in address
            assert reply.status_code == 200 or may_fail, address
            assert strange_parts(reply.text) == [], address
        exported = await site.html(f"/sessions/{session_id}/export?as=html")
    allowed = ("<style>",)
    assert [part for part in strange_parts(exported) if part not in allowed] == []


def test_the_checker_sees_each_attack() -> None:
    """What stands raw in a page is noticed: else the test above proves nothing."""
    seen = [text for text in PAYLOADS[:50] if strange_parts(f"<p>{text}</p>")]
    assert len(seen) >= 34  # the others are Markdown, templates, and addresses for a person
