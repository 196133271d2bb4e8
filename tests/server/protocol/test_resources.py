"""Resources, prompts and completions, in both eras."""

import json

import pytest
from context_compaction.formats import FORMATS
from context_compaction.policies import POLICIES
from context_compaction.request import SETTING_NAMES, Settings
from mcp import Client
from mcp.client.session import IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_server_compaction.config import Config
from mcp_types import (
    PromptReference,
    ReadResourceResult,
    ResourceListChangedNotification,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    TextContent,
    TextResourceContents,
)

from tests.server.helpers import Era, answer_of, connect, conversation, output

MESSAGES = conversation(calls=3, result_lines=20)


async def _record(client: Client, session_id: str) -> None:
    await client.call_tool(
        "compact_messages", {"messages": MESSAGES, "mode": "record", "session_id": session_id}
    )


def _texts(result: ReadResourceResult) -> list[str]:
    return [item.text for item in result.contents if isinstance(item, TextResourceContents)]


async def test_sessions_are_listed_newest_first_and_page_by_page(config: Config, era: Era) -> None:
    names = [f"session-{number:02}" for number in range(30)]
    async with connect(config, era) as client:
        for name in names:
            await _record(client, name)
        first = await client.list_resources()
        assert first.next_cursor
        second = await client.list_resources(cursor=first.next_cursor)
    uris = [str(item.uri) for item in [*first.resources, *second.resources]]
    assert uris[:2] == ["options://compact_messages", "policies://compact_messages"]
    assert uris[2:] == [f"transcript://{name}" for name in reversed(names)]
    assert second.next_cursor is None


async def test_invalid_cursor_is_refused(config: Config) -> None:
    async with connect(config) as client:
        with pytest.raises(MCPError, match="cursor"):
            await client.list_resources(cursor="nonsense")


async def test_the_templates_are_listed(config: Config) -> None:
    async with connect(config) as client:
        templates = (await client.list_resource_templates()).resource_templates
    assert [template.uri_template for template in templates] == [
        "transcript://{session_id}",
        "transcript://{session_id}/messages/{start}-{stop}",
        "transcript://{session_id}/receipts",
        "transcript://{session_id}/receipts/{number}",
        "transcript://{session_id}/context",
        "transcript://{session_id}/files",
        "transcript://{session_id}/files/{+path}",
        "transcript://{session_id}/plan",
        "transcript://{session_id}/plan/{number}",
        "output://{output_id}",
        "output://{output_id}/lines/{start}-{stop}",
    ]


async def test_session_resource_has_metadata_and_newest_messages(config: Config) -> None:
    async with connect(config) as client:
        await _record(client, "s")
        about, newest = _texts(await client.read_resource("transcript://s"))
    assert json.loads(about)["message_count"] == len(MESSAGES)
    shown = [json.loads(line) for line in newest.splitlines()]
    assert shown == MESSAGES[-len(shown) :]


async def test_a_range_of_messages_reads_as_json_lines(config: Config) -> None:
    async with connect(config) as client:
        await _record(client, "s")
        (text,) = _texts(await client.read_resource("transcript://s/messages/1-2"))
    assert [json.loads(line) for line in text.splitlines()] == MESSAGES[1:3]


async def test_receipts_and_outputs_are_resources(config: Config) -> None:
    async with connect(config) as client:
        await client.call_tool(
            "compact_messages",
            {"messages": conversation(), "session_id": "s", "target_tokens": 12_000},
        )
        (receipts,) = _texts(await client.read_resource("transcript://s/receipts"))
        stored = answer_of(
            await client.call_tool(
                "persist_large_output", {"output": output(), "threshold_tokens": 0}
            )
        )
        (text,) = _texts(await client.read_resource(f"output://{stored['output_id']}"))
    assert json.loads(receipts)["session_id"] == "s"
    assert text == output()


@pytest.mark.parametrize(
    "uri",
    [
        "transcript://absent",
        "transcript://absent/messages/0-1",
        "output://o_0123456789abcdef01234567",
        "transcript://../etc/passwd",
        "file:///etc/passwd",
    ],
)
async def test_missing_resource_is_an_error_that_names_it(config: Config, uri: str) -> None:
    async with connect(config) as client:
        with pytest.raises(MCPError) as refused:
            await client.read_resource(uri)
    assert refused.value.error.code == -32602
    assert refused.value.error.data == {"uri": uri}


async def test_the_policies_resource_names_layers_constants_and_sources(config: Config) -> None:
    async with connect(config) as client:
        (text,) = _texts(await client.read_resource("policies://compact_messages"))
    policies = {policy["name"]: policy for policy in json.loads(text)["policies"]}
    assert set(policies) == set(POLICIES)
    assert policies["default"]["constants"] == {"target_fraction": 0.3}
    assert policies["economy"]["constants"] == {
        "conversation_fraction": 0.42,
        "target_fraction": 0.15,
    }
    assert policies["three-layer"]["constants"]["trigger_tokens"] == 50_000
    assert policies["four-layer"]["layers"] == ["persist", "snip", "microcompact", "summarize"]
    own_policies = ("default", "economy", "gentle")
    papers = [policy for name, policy in policies.items() if name not in own_policies]
    assert all(policy["differences_from_source"] for policy in papers)


async def test_the_options_resource_describes_every_option_and_constant(config: Config) -> None:
    async with connect(config) as client:
        (text,) = _texts(await client.read_resource("options://compact_messages"))
    document = json.loads(text)
    assert {"model", "pinned", "usage", "idle_seconds"} <= set(document["options"])
    assert [name for name in FORMATS if name not in json.dumps(document["options"]["format"])] == []
    constants = document["constants_of_the_policy"]
    assert set(constants) == set(SETTING_NAMES)
    assert all(constant["description"] for constant in constants.values())
    assert constants["keep_recent_results"]["default"] == Settings().keep_recent_results


async def test_the_ids_of_sessions_complete(config: Config) -> None:
    template = ResourceTemplateReference(uri="transcript://{session_id}/messages/{start}-{stop}")
    async with connect(config) as client:
        for name in ("alpha-1", "alpha-2", "beta"):
            await _record(client, name)
        names = await client.complete(template, {"name": "session_id", "value": "alpha"})
        of_prompt = await client.complete(
            PromptReference(name="recall"), {"name": "question", "value": "b"}
        )
    assert names.completion.values == ["alpha-2", "alpha-1"]
    assert of_prompt.completion.values == []


async def test_prompts_contain_the_text_of_the_user(config: Config, era: Era) -> None:
    async with connect(config, era) as client:
        listed = (await client.list_prompts()).prompts
        compact = await client.get_prompt("compact", {"focus": "the ledger"})
        recall = await client.get_prompt("recall", {"question": "Which port?"})
    assert [prompt.name for prompt in listed] == ["compact", "recall"]
    for result, words in ((compact, "the ledger"), (recall, "Which port?")):
        content = result.messages[0].content
        assert isinstance(content, TextContent)
        assert words in content.text
    # A host may split the typed text at blanks, and a second argument would get its second word.
    assert all(len(prompt.arguments or []) == 1 for prompt in listed)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("recal", {}, "recall"),
        ("recall", {}, "question"),
        ("compact", {"fokus": "x"}, "focus"),
    ],
)
async def test_a_wrong_prompt_call_is_explained(
    config: Config, name: str, arguments: dict[str, str], expected: str
) -> None:
    async with connect(config) as client:
        with pytest.raises(MCPError, match=expected):
            await client.get_prompt(name, arguments)


@pytest.mark.filterwarnings("ignore:resources/.*subscribe is removed")
async def test_handshake_clients_get_notifications(config: Config) -> None:
    updated: list[str] = []
    listed: list[str] = []

    async def note(message: IncomingMessage) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            updated.append(str(message.params.uri))
        if isinstance(message, ResourceListChangedNotification):
            listed.append("once for each session, not at every call")

    async with connect(config, "legacy", message_handler=note) as client:
        capabilities = client.server_capabilities
        assert capabilities is not None
        assert capabilities.resources is not None
        assert capabilities.resources.subscribe
        assert capabilities.resources.list_changed
        await client.subscribe_resource("transcript://s")  # pyright: ignore[reportDeprecated]
        await _record(client, "s")
        await _record(client, "other")
        await client.unsubscribe_resource("transcript://s")  # pyright: ignore[reportDeprecated]
        await _record(client, "s")
        await client.list_resources()  # its reply follows all earlier notifications
    assert updated == ["transcript://s"]
    assert len(listed) == 2


async def test_present_clients_listen_on_a_stream(config: Config) -> None:
    async with (
        connect(config) as client,
        client.listen(
            resources_list_changed=True, resource_subscriptions=["transcript://s"]
        ) as events,
    ):
        await _record(client, "s")
        names: set[str] = set()
        async for event in events:
            names.add(type(event).__name__)
            if len(names) == 2:
                break
    assert names == {"ResourceUpdated", "ResourcesListChanged"}


async def test_a_resource_too_large_for_one_answer_is_read_page_by_page(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = "mcp_server_compaction.protocol.resource_contents.MAX_RESOURCE_BYTES"
    monkeypatch.setattr(limit, 3_000)
    text = "".join(f"строка {number}\n" for number in range(600))
    async with connect(config) as client:

        async def pages(uri: str) -> list[str]:
            found: list[str] = []
            while True:
                contents = (await client.read_resource(uri)).contents
                assert all(isinstance(part, TextResourceContents) for part in contents)
                texts = [part.text for part in contents if isinstance(part, TextResourceContents)]
                assert len(texts[0].encode()) <= 3_000
                found.append(texts[0])
                if len(contents) == 1:
                    return found
                uri = str(contents[1].uri)
                assert uri in texts[1]

        stored = answer_of(
            await client.call_tool("persist_large_output", {"output": text, "threshold_tokens": 0})
        )
        output_uri = f"output://{stored['output_id']}"
        assert "".join(await pages(output_uri)) == text
        assert len(await pages(f"{output_uri}/lines/11-20")) == 1
        assert "".join(await pages(f"{output_uri}/lines/11-20")).split("\n")[0] == "строка 10"
        messages = conversation(20, result_lines=3)
        await client.call_tool(
            "compact_messages", {"messages": messages, "session_id": "s", "mode": "record"}
        )
        uri = f"transcript://s/messages/0-{len(messages) - 1}"
        lines = "".join(await pages(uri)).splitlines()
        assert [json.loads(line) for line in lines] == messages
