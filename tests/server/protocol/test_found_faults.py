"""Faults that were found from outside, each through an MCP client."""

import itertools
from typing import Any

from mcp import Client
from mcp_server_compaction.config import Config

from tests.server.helpers import Json, connect
from tests.support.small import agent, answered, user


async def compact(client: Client, messages: list[Json], **given: Any) -> Json:
    """Return the structured reply, or the text of the error under "error"."""
    reply = await client.call_tool(
        "compact_messages", {"messages": messages, "reply": "messages", **given}
    )
    if reply.is_error:
        return {"error": str(reply.content)}
    assert reply.structured_content is not None
    return reply.structured_content


def call(number: Any, name: str, arguments: Json, result: str) -> list[Json]:
    """A call and its result."""
    return answered(f"t{number}", name, result, **arguments)


def filler(count: int, word: str) -> list[Json]:
    """Return turns of about 600 tokens, each about another file."""
    return [
        message
        for i in range(count)
        for message in (
            user(f"step {i}: look at {word}_{i}.py please. " + "It has many lines of code. " * 40),
            agent(f"{word}_{i}.py has function f{i}. " + "It does things with values. " * 40),
        )
    ]


async def test_a_host_that_moves_its_cache_marker_stays_in_one_session(
    config: Config,
) -> None:
    texts = ["Look at the parser.", "It is fine.", "Now the lexer.", "Fine too."]

    def turns(count: int, marked: int | None) -> list[Json]:
        blocks: list[Json] = [{"type": "text", "text": text} for text in texts[:count]]
        if marked is not None:
            blocks[marked]["cache_control"] = {"type": "ephemeral"}
        return [(agent if at % 2 else user)([block]) for at, block in enumerate(blocks)]

    plain = [(agent if at % 2 else user)(text) for at, text in enumerate(texts)]
    async with connect(config) as client:
        ids = {
            (await compact(client, messages, context_window=16000))["session_id"]
            for messages in (turns(2, 0), turns(3, 2), plain)
        }
    assert len(ids) == 1


async def test_conversations_with_equal_beginnings_stay_separate(
    config: Config,
) -> None:
    secret = user("My account is ACME-4711 and you must never call me before noon.")
    hello = user("Hello, I need help.")
    first = [hello, agent("Sure."), secret, agent("Noted."), user("thanks")]
    async with connect(config) as client:
        await compact(client, first, context_window=16000)
        begun = [hello, agent("Of course."), *filler(8, "beta"), user("go on")]
        begun_reply = await compact(client, begun, context_window=16000, mode="full")
        grown = [*begun_reply["messages"], agent("done"), *filler(8, "gamma"), user("and now?")]
        grown_reply = await compact(client, grown, context_window=16000, mode="full")
        assert begun_reply["session_id"] == grown_reply["session_id"]
        read = await client.call_tool(
            "read_persisted_output",
            {"output_id": grown_reply["boundary"]["pointer"], "pattern": "ACME"},
        )
    assert not read.is_error
    for reply in (begun_reply, grown_reply, read.content):
        assert "ACME-4711" not in str(reply)
    assert "beta_0.py" in str(grown_reply["messages"]), "the text of the session itself is retained"


async def test_text_that_the_user_edited_away_does_not_return(config: Config) -> None:
    start = [user("Port the parser."), agent("Which library?")]
    abandoned = user("Never touch OLDBRANCH_secret.py, always use zebra_lib.")
    variants: Json = {"context_window": 16000, "session_id": "s1"}
    async with connect(config) as client:
        await compact(client, [*start, abandoned, agent("Fine.")], **variants)
        edited = [*start, user("Use the standard library."), agent("Fine."), *filler(8, "beta")]
        new = await compact(client, [*edited, user("go on")], mode="full", **variants)
        grown = [*new["messages"], agent("done"), *filler(8, "gamma"), user("next?")]
        again = await compact(client, grown, mode="full", **variants)
        read = await client.call_tool(
            "read_persisted_output", {"output_id": again["boundary"]["pointer"]}
        )
    assert not read.is_error
    for reply in (new, again, read.content):
        assert "zebra_lib" not in str(reply)


async def test_usage_below_the_trigger_leaves_the_list_as_it_is(
    config: Config,
) -> None:
    messages = [*filler(30, "m")[:-1], agent("done")]
    model = {"model": "claude-sonnet-4-5"}
    async with connect(config) as client:
        plan = await compact(client, messages, mode="plan", context_window=2_000_000, options=model)
        used = plan["tokens"]["before"] + 15_000
        usage = {"input_tokens": used - 200, "output_tokens": 200}
        model_usage = {**model, "usage": usage, "usage_message_index": len(messages) - 1}
        for part in (0.85, 0.95, 1.0):
            variants = {"policy": "claude-code", "context_window": int(used / part) + 33_000}
            options = {**model_usage, "max_output_tokens": 20_000}
            reply = await compact(
                client, messages, session_id=f"u{int(part * 100)}", options=options, **variants
            )
            assert reply["status"] == "unchanged", part
            assert reply["fits"]
            assert reply["tokens"]["before"] == reply["tokens"]["upper"] == used


ALIKE: tuple[tuple[str, *tuple[Any, ...]], ...] = (
    ("Set the timeout of the {} client to {} seconds.", "billing", 30, "search", 45, "mail", 60),
    ("Give user {} a refund of {} dollars.", 1041, 20, 1042, 35, 1043, 50),
    ("Server {} must listen on port {}.", "A", 8001, "B", 8002, "C", 8003),
    ("Please summarise chapter {} of the book for {}.", 1, "me", 2, "me", 3, "me"),
    ("Rename column {} to {}.", "a1", "b1", "a2", "b2", "a3", "b3"),
    ("{} store customer emails in Redis{}.", "Never", "", "Do not flush Redis while we", ""),
)


async def test_similar_sentences_about_different_things_are_all_kept(
    config: Config,
) -> None:
    async with connect(config) as client:
        for number, (form, *given) in enumerate(ALIKE):
            sentences = [form.format(*given[at : at + 2]) for at in range(0, len(given), 2)]
            messages: list[Json] = []
            for n, text in enumerate(sentences):
                run = call(n, "bash", {"command": f"do {n}"}, f"result {n} data " * 500)
                messages += [user(text), *run, agent("done")]
            conversation = [*messages, user("continue")]
            answer = await compact(
                client, conversation, mode="full", context_window=200_000, session_id=f"s{number}"
            )
            content = str(answer["messages"])
            assert [text for text in sentences if text not in content] == []
            assert "[replaced later]" not in content


SENTENCES = (
    "The budget is $1250. Never spend more than that without asking me.",
    "My user ID is aarav_ahmed_6699. As for the reason, my plans have changed.",
    "Only Python 3.11. No external network calls from the sandbox.",
    "Alert only if latency is > 200 ms.",
    "Born on April 12, 2001. My family needs no travel insurance.",
)


async def test_sentences_keep_every_number_sign_and_word(
    config: Config,
) -> None:
    before = [user("Hello, I need some help."), agent("Sure.")]
    after = [agent("Noted."), *filler(8, "w"), user("What is next?")]
    async with connect(config) as client:
        for number, sentence in enumerate(SENTENCES):
            answer = await compact(
                client,
                [*before, user(sentence), *after],
                target_tokens=1_500,
                session_id=f"s{number}",
            )
            assert sentence in str(answer["messages"]).replace("\\n- ", " ")


async def test_a_whole_list_at_every_call_keeps_its_beginning_until_the_trigger_is_met(
    config: Config,
) -> None:
    history = [user("Audit all files. Never edit vendor/.")]
    sent: list[list[Json]] = []
    async with connect(config) as client:
        for number in range(30):
            answer = await compact(
                client, history, session_id="w", context_window=50_000, summarizer="extractive"
            )
            assert "hrash" not in str(answer["warnings"])
            sent.append(answer["messages"] if answer["changed"] else [*history])
            text = "\n".join(f"def fn_{number}_{n}(x): return x*{n}" for n in range(100))
            history += call(number, "bash", {"command": f"cat f{number}.py"}, text)
        edits = await compact(client, history, session_id="w", context_window=50_000, reply="edits")
        as_list = await compact(client, history, session_id="w", context_window=50_000)
    restarted = sum(after[: len(before)] != before for before, after in itertools.pairwise(sent))
    assert restarted <= 4
    assert sent[-1] != history[:-2], "it was compacted"
    spliced = [*history]
    for splice in reversed(edits["edits"]):
        start = splice["start"]
        spliced[start : start + splice["delete_count"]] = splice["insert"]
    assert spliced == as_list["messages"]
