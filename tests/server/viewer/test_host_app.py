"""The document that hosts with MCP Apps show next to the results of tools."""

import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest
from mcp_server_compaction.config import Config
from mcp_server_compaction.viewer.web import host_app
from mcp_types import TextResourceContents

from tests.server.helpers import answer_of, connect, conversation, text_of
from tests.server.viewer.browser import WAIT_MS, PageMonitor, run_in_thread
from tests.support.markup_attacks import PAYLOADS

APP_TYPE = "text/html;profile=mcp-app"


async def test_tools_refer_to_the_document_that_shows_their_results(config: Config) -> None:
    async with connect(config) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name in ("compact_messages", "search_transcript"):
            uri = (tools[name].meta or {})["ui"]["resourceUri"]
            assert uri.startswith("ui://")
            (content,) = (await client.read_resource(uri)).contents
            assert isinstance(content, TextResourceContents)
            assert content.mime_type == APP_TYPE
            assert content.text == host_app()
        arguments = {"messages": conversation(), "target_tokens": 12_000, "session_id": "s"}
        result = await client.call_tool("compact_messages", arguments)
        # A host without MCP Apps shows the text.
        assert answer_of(result)["status"] in text_of(result)


def test_document_allows_only_its_own_script_and_loads_nothing() -> None:
    page = host_app()
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in page
    assert "default-src &#39;none&#39;" in page
    assert "innerHTML" not in script
    assert not re.findall(r"\b(?:src|href)=", page)


HOST = """<!doctype html><iframe id="app" sandbox="allow-scripts" width="800" height="600"></iframe>
<script>
const frame = document.getElementById("app");
const sent = [];
window.addEventListener("message", ({ data, source }) => {
  if (source !== frame.contentWindow) return;
  sent.push(data);
  const answer = (result) =>
    frame.contentWindow.postMessage({ jsonrpc: "2.0", id: data.id, result }, "*");
  if (data.method === "ui/initialize")
    answer({ protocolVersion: data.params.protocolVersion, hostInfo: { name: "h", version: "1" },
             hostCapabilities: { serverTools: {} }, hostContext: { theme: "dark" } });
  else if (data.method === "tools/call")
    answer({ content: [
      { type: "text", text: `the original of ${data.params.arguments.output_id} has timeout` },
      { type: "text", text: `[o_1: Characters ${data.params.arguments.offset}-` +
        `${data.params.arguments.offset + 4000} of 10000. Read on with offset.]` } ] });
});
window.notify = ([name, params]) => frame.contentWindow.postMessage(
  { jsonrpc: "2.0", method: `ui/notifications/${name}`, params }, "*");
window.sent = sent;
</script>"""


async def _compacted(config: Config) -> list[Any]:
    attack = PAYLOADS[2]
    raws = [{"role": "user", "content": f"{attack} Never trust {attack}."}, *conversation()]
    async with connect(config) as client:
        arguments = {
            "messages": raws,
            "target_tokens": 12_000,
            "session_id": "s",
            "reply": "receipt",
        }
        compacted = await client.call_tool("compact_messages", arguments)
        found = await client.call_tool("search_transcript", {"query": "onerror trust timeout"})
        return [r.model_dump(mode="json", by_alias=True) for r in (compacted, found)]


@pytest.mark.slow
def test_document_shows_a_compaction_and_a_search_and_reads_originals(
    chromium: Any, config: Config
) -> None:
    compacted, found = run_in_thread(_compacted, config)
    monitor = PageMonitor()
    page = chromium.new_page()
    page.set_default_timeout(WAIT_MS)
    monitor.attach(page, "nowhere")
    page.set_content(HOST)
    page.evaluate("html => { document.getElementById('app').srcdoc = html }", host_app())
    page.wait_for_function("sent.some(m => m.method === 'ui/notifications/initialized')")
    app = page.frame_locator("#app")
    page.evaluate("notify", ["tool-result", compacted])
    app.locator("h1").wait_for()
    assert "tokens" in app.locator("h1").inner_text()
    shown = app.locator("main").inner_text()
    assert "Everything that left it is in the archive" in shown
    assert "structuredContent" not in shown
    app.locator(".names button").last.click()
    app.locator(".read >> text=the original of").wait_for()
    assert "Read on with offset" not in app.locator("main").inner_text()
    app.locator("text=Characters 0 to 4,000 of 10,000").wait_for()
    app.locator("text=Next part").click()
    app.locator("text=Characters 4,000 to 8,000 of 10,000").wait_for()
    app.locator("text=Previous part").click()
    app.locator("text=Characters 0 to 4,000 of 10,000").wait_for()
    page.evaluate("notify", ["tool-input", {"arguments": {"query": "onerror trust"}}])
    page.evaluate("notify", ["tool-result", found])
    app.locator(".hit").first.wait_for()
    assert PAYLOADS[2][:20] in app.locator("main").inner_text()
    assert app.locator("mark").first.inner_text().lower() in {"onerror", "trust"}
    app.locator(".hit > button").first.click()
    app.locator(".read >> text=the original of").wait_for()
    assert monitor.is_clean(), monitor
    page.close()
