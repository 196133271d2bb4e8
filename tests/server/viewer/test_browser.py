"""A person with a browser: open, read, follow, search, plan, clean up, take along."""

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from context_compaction import formats
from context_compaction.archive.opening import open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from hypothesis import settings
from mcp_server_compaction.config import Config

from tests.server.viewer.browser import WAIT_MS, Watch, apart, settle, viewer_process
from tests.server.viewer.site import fill
from tests.server.viewer.test_attacks import fill_attacked, pages_of
from tests.support.markup_attacks import PAYLOADS
from tests.support.story import story

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PAGES = (
    "/", "/sessions/main", "/sessions/main/compactions", "/sessions/main/compactions/last",
    "/sessions/main/context", "/sessions/main/keep", "/sessions/main/delete", "/search?q=rounded",
    "/archive", "/archive/prune?days=0", "/sessions/main/messages/2/0",
    "/sessions/none",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("viewer")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """A viewer of a story that was compacted twice."""
    apart(_fill, Config(archive_folder=folder / "archive"))
    with viewer_process(folder / "archive", folder / "cache") as entry:
        yield entry


async def _fill(config: Config) -> None:
    await fill(config)
    async with open_archive(config.archive) as archive:
        small = {"min_result_tokens": 1, "min_savings_tokens": 1, "keep_recent_results": 1}
        wish = CompactRequest(session_id="cleared", mode="micro", settings=small)
        assert (await compact(story(turns=5), wish, archive=archive)).changed


@pytest.fixture(scope="module")
def entered(chromium: Any, address: str) -> Iterator[Any]:
    """A browser that was let in."""
    context = chromium.new_context(accept_downloads=True)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("h1")
    yield context
    context.close()


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def page(entered: Any, address: str, watch: Watch) -> Iterator[Any]:
    opened = entered.new_page()
    watch.follow(opened, address.split("/")[2])
    opened.goto(_base(address))
    yield opened
    opened.close()


def _base(address: str) -> str:
    return "/".join(address.split("/")[:3])


def test_what_was_lost_at_the_last_compaction_is_four_clicks_away(page: Any, watch: Watch) -> None:
    page.click("text=Find out why the invoices >> nth=0")
    page.click("nav.tabs >> text=Compactions")
    page.click("text=the last one")
    page.click(".headlines .seq >> nth=0")
    page.wait_for_selector(".message[data-seq]")
    assert "#m" in page.url
    assert watch.saw_nothing(), watch


def test_a_placeholder_leads_to_its_original(page: Any, address: str, watch: Watch) -> None:
    page.goto(f"{_base(address)}/sessions/cleared/compactions/last")
    placeholder = page.locator(".changed .after a.pointer[href^='/outputs/']").first
    assert "round_half_even" not in placeholder.locator("xpath=ancestor::article").inner_text()
    placeholder.click()
    page.wait_for_selector(".lines tr")
    assert "round_half_even" in page.inner_text(".lines")
    assert watch.saw_nothing(), watch


def test_search_goes_by_keys_alone(page: Any, watch: Watch) -> None:
    page.keyboard.press("/")
    page.wait_for_selector("#search-words:focus")
    page.keyboard.type("rounded wrongly")
    page.keyboard.press("Enter")
    page.wait_for_selector(".hit-link")
    page.wait_for_load_state("load")  # the keys work when the scripts have run
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.className").startswith("hit-link")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message[data-seq]")
    page.wait_for_load_state("load")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    page.wait_for_selector(".message.current")
    assert watch.saw_nothing(), watch


def test_the_next_compaction_is_planned_and_pruning_shown_first(
    page: Any, address: str, watch: Watch
) -> None:
    page.goto(f"{_base(address)}/sessions/main/context")
    page.wait_for_selector("svg.bar")
    page.select_option("select[name=policy]", "economy")
    page.click("text=Plan with these")
    page.wait_for_selector("text=What the next compaction would do")
    page.goto(f"{_base(address)}/archive")
    page.fill("input[name=days]", "0")
    page.click("text=Show what would go")
    page.wait_for_selector("text=Nothing is deleted yet")
    page.goto(_base(address))
    assert page.locator(".session .title").count() == 3
    assert watch.saw_nothing(), watch


def test_an_export_is_one_file_that_asks_for_nothing(
    page: Any, entered: Any, address: str, folder: Path
) -> None:
    page.goto(f"{_base(address)}/sessions/main/keep")
    with page.expect_download() as download:
        page.click("text=Download")
    path = folder / "main.html"
    download.value.save_as(path)
    alone = entered.new_page()
    asked: list[str] = []

    def note(request: Any) -> None:
        asked.append(request.url)

    alone.on("request", note)
    alone.goto(path.as_uri())
    assert "Find out why the invoices" in alone.inner_text("main")
    assert asked == [path.as_uri()]
    alone.close()


@pytest.mark.parametrize(
    ("scheme", "rules"),
    [("light", ""), ("dark", ", runOnly: ['color-contrast']")],
    ids=["light", "dark"],
)
def test_no_page_keeps_anybody_out(
    chromium: Any, address: str, scheme: str, rules: str, page: Any
) -> None:
    """What axe finds of colours, names, landmarks and order."""
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    context = chromium.new_context(
        color_scheme=scheme, storage_state=page.context.storage_state(), bypass_csp=True
    )
    context.set_default_timeout(WAIT_MS)
    looked = context.new_page()
    for path in PAGES:
        looked.goto(f"{_base(address)}{path}")
        settle(looked)
        looked.evaluate(axe)
        found = looked.evaluate(f"axe.run(document, {{resultTypes: ['violations']{rules}}})")
        told = [(v["id"], [n["html"][:200] for n in v["nodes"]]) for v in found["violations"]]
        assert told == [], f"{path}: {json.dumps(told, indent=1)}"
    context.close()


def test_every_page_fits_a_narrow_window(chromium: Any, address: str, page: Any) -> None:
    context = chromium.new_context(
        viewport={"width": 360, "height": 740}, storage_state=page.context.storage_state()
    )
    narrow = context.new_page()
    for path in PAGES:
        narrow.goto(f"{_base(address)}{path}")
        settle(narrow)
        assert narrow.evaluate("document.documentElement.scrollWidth") <= 360, path
    context.close()


def test_nothing_of_a_transcript_runs_and_nothing_is_sent(
    chromium: Any, tmp_path: Path, watch: Watch
) -> None:
    config = Config(archive_folder=tmp_path / "archive")
    # Some of each kind: test_attacks looks at the markup of all.
    apart(fill_attacked, config, PAYLOADS[::3])
    with viewer_process(tmp_path / "archive", tmp_path / "cache") as entry:
        context = chromium.new_context()
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.goto(entry)
        page.wait_for_selector("h1")
        watch.follow(page, entry.split("/")[2])
        for path in apart(_addresses, config):
            page.goto(f"{_base(entry)}{path}")
            settle(page)
            page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
            assert page.evaluate("window.ran") is None, path
            assert page.url.startswith(_base(entry)), path
            errors = [text for text in watch.errors if "the server responded with" not in text]
            assert (watch.asked, watch.dialogs, errors) == ([], [], []), path
        context.close()


async def _addresses(config: Config) -> list[str]:
    from tests.server.viewer.site import visiting

    async with visiting(config) as site:
        found = await pages_of(site, "attacked")
    # Parts alone are no pages; a few blocks say what all do.
    return [path for path in found if "/messages/" not in path] + [
        path for path in found if "/messages/2/" in path and "part=" not in path
    ][:3]


async def _long_session(folder: Path, count: int) -> None:
    said = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"message {n}: " + "word " * 40}
        for n in range(count)
    ]
    async with open_archive(folder / "archive") as archive:
        messages = formats.parse(said, format="anthropic")
        await archive.append("long", messages, format="anthropic")


JUMP = """async () => {
  document.querySelector("#go input").value = "AT";
  document.querySelector("#go").requestSubmit();
  while (!document.getElementById("mAT")) await new Promise((r) => requestAnimationFrame(r));
}"""


# Every night a hundred thousand.
MANY = 100_000 if settings().max_examples > 1_000 else 25_000


def test_a_very_long_session_asks_for_the_parts_near_the_window_only(
    chromium: Any, tmp_path: Path
) -> None:
    asked: list[str] = []

    def note(request: Any) -> None:
        asked.append(request.url)

    apart(_long_session, tmp_path, MANY)
    with viewer_process(tmp_path / "archive", tmp_path / "cache") as entry:
        context = chromium.new_context()
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.goto(entry)
        page.wait_for_selector("h1")
        page.goto(f"{_base(entry)}/sessions/long")
        page.wait_for_selector("#transcript[data-ready]")
        settle(page)
        page.on("request", note)
        page.evaluate(JUMP.replace("AT", str(MANY * 9 // 10)))
        assert len(asked) <= 4  # for what is around there
        for at in (MANY // 2, 10, MANY - 1, MANY // 3):
            page.evaluate(JUMP.replace("AT", str(at)))
        assert page.evaluate("document.querySelectorAll('.message').length") <= 400
        context.close()
