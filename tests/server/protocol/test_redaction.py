"""Secrets are counted or removed at every gate, and signed content does not change."""

import json
import re
import tempfile
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from context_compaction.find_secrets import find_secrets
from context_compaction.redaction import RedactionMode, redact, redact_json
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp_server_compaction.config import Config, load_config

from tests.server.helpers import Json, answer_of, connect, conversation, error_of, text_of
from tests.support.secrets import is_found, labelled

# Put together here, so that no file holds what looks like a key.
GITHUB = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
ANTHROPIC = "sk-ant-api03-" + "Zx9-bTq4Rw7Lm2Vk8Hs5" * 4 + "Zx9-bTq4Rw7LmAA"
PASSWORD = "horse7battery2staple"


def conversation_with_secrets() -> list[Json]:
    """A conversation in which the user, a tool and the agent each name a secret."""
    messages = conversation(14, 60)
    messages[0]["content"] += f" Always use the token {GITHUB} for the registry."
    messages[1]["content"][0]["text"] += f" With db_password: {PASSWORD} it works."
    messages[2]["content"][0]["content"] += f"\nANTHROPIC_API_KEY={ANTHROPIC}\n"
    return messages


@asynccontextmanager
async def served(tmp_path: Path, mode: RedactionMode) -> AsyncGenerator[Client]:
    async with connect(Config(archive_folder=tmp_path / "archive", redaction=mode)) as client:
        yield client


async def _compacted(client: Client, **more: Any) -> Json:
    given = {
        "messages": conversation_with_secrets(),
        "mode": "full",
        "target_tokens": 4_000,
        "session_id": "s",
    }
    given |= {"reply": "messages"}
    return answer_of(await client.call_tool("compact_messages", given | more))


async def _read(client: Client) -> str:
    read_arguments = {"output_id": "transcript://s/messages/0-4", "as_json": True}
    return text_of(await client.call_tool("read_persisted_output", read_arguments))


def _on_disk(folder: Path, secret: str) -> bool:
    files = [p for p in folder.rglob("*") if p.is_file()]
    return any(secret in str(p) or secret.encode() in p.read_bytes() for p in files)


async def test_warn_mode_counts_secrets_and_changes_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, "warn") as client:
        reply = await _compacted(client)
        archived = await _read(client)
    assert reply["receipt"]["redaction"]["archived"] == {
        "anthropic api key": 1,
        "github pat": 1,
        "generic api key": 1,
    }
    assert reply["receipt"]["redaction"]["shown"]
    assert any("archived possible secrets" in warning for warning in reply["warnings"])
    for secret in (GITHUB, ANTHROPIC, PASSWORD):
        assert secret in archived


async def test_on_mode_keeps_secrets_from_disk_and_summaries(tmp_path: Path) -> None:
    async with served(tmp_path, "on") as client:
        reply = await _compacted(client)
        archived = await _read(client)
        stored = answer_of(
            await client.call_tool("persist_large_output", {"output": f"{GITHUB}\n" * 4_000})
        )
        output = text_of(
            await client.call_tool("read_persisted_output", {"output_id": stored["output_id"]})
        )
    assert reply["receipt"]["redaction"]["mode"] == "on"
    new_messages = json.dumps([
        m for m in reply["messages"] if m not in conversation_with_secrets()
    ])
    for secret in (GITHUB, ANTHROPIC, PASSWORD):
        assert secret not in archived + new_messages + output + stored["marker"]
        assert not _on_disk(tmp_path / "archive", secret)
    assert "[redacted: github pat]" in archived
    assert "[redacted: github pat]" in new_messages, "the rule itself is retained"


async def test_on_mode_removes_secrets_from_the_host_prompt(tmp_path: Path) -> None:
    async with served(tmp_path, "on") as client:
        reply = await _compacted(client, summarizer="host")
    assert reply["status"] == "needs_summary"
    shown = json.dumps(reply["summary_request"])
    assert "[redacted: " in shown
    for secret in (GITHUB, ANTHROPIC, PASSWORD):
        assert secret not in shown


async def test_off_mode_does_not_look_for_secrets(tmp_path: Path) -> None:
    async with served(tmp_path, "off") as client:
        reply = await _compacted(client)
    assert "redaction" not in reply["receipt"]
    assert not any("secret" in warning for warning in reply["warnings"])


def test_default_is_warn_over_stdio_and_on_over_http(tmp_path: Path) -> None:
    given: dict[str, Any] = {"archive": str(tmp_path / "a"), "environment": {}}
    assert load_config(**given).redaction == "warn"
    assert load_config(**given, over_http=True).redaction == "on"
    assert load_config(**given, over_http=True, redaction="off").redaction == "off"


SIGNED = {"type": "thinking", "thinking": "hm", "signature": GITHUB}


@pytest.mark.parametrize(
    "value",
    [
        SIGNED,
        {"call_id": "c", "encrypted_content": ANTHROPIC},
        {"thoughtSignature": GITHUB},
        {"source": {"type": "base64", "data": ANTHROPIC}},
        {"audio": {"id": "audio_1", "data": ANTHROPIC, "transcript": "text"}},
        {"inlineData": {"mimeType": "image/png", "data": ANTHROPIC}},
        {"type": "redacted_thinking", "data": ANTHROPIC},
    ],
)
def test_signatures_and_media_stay_as_they_were(value: Json) -> None:
    assert redact_json(value) == value


@pytest.mark.parametrize(
    "value",
    [
        {"name": "post", "input": {"url": "https://a", "data": GITHUB}},
        {"source": {"type": "text", "media_type": "text/plain", "data": f"is {GITHUB}"}},
        {"functionResponse": {"name": "f", "response": {"data": [GITHUB]}}},
    ],
)
def test_text_in_data_fields_is_redacted(value: Json) -> None:
    assert GITHUB not in json.dumps(redact_json(value))


def _call_of(messages: list[Json]) -> Json:
    """Return the second tool call of a conversation. Messages 3 and 4 contain it."""
    return messages[3]["content"][1]


def _with_path(messages: list[Json], path: str) -> None:
    _call_of(messages).update(name="Write", input={"file_path": path, "content": "x = 1\n" * 300})


ODD_PLACES: dict[str, Callable[[list[Json]], None]] = {
    "the name of a tool": lambda m: _call_of(m).update(name=f"run_{GITHUB}"),
    "the name of an argument": lambda m: _call_of(m)["input"].update({GITHUB: "x"}),
    "an argument called id": lambda m: _call_of(m)["input"].update(id=GITHUB),
    "a signature among arguments": lambda m: _call_of(m)["input"].update(signature=[GITHUB]),
    "a path": lambda m: _with_path(m, f"/w/{GITHUB}/a.py"),
    "a long path": lambda m: _with_path(m, f"/w/{'deep/' * 30}{GITHUB}/a.py"),
}


@pytest.mark.parametrize("place", ODD_PLACES)
async def test_with_on_a_secret_in_an_odd_place_reaches_no_disk_and_its_list_is_known_again(
    tmp_path: Path, place: str
) -> None:
    messages = conversation(14, 60)
    ODD_PLACES[place](messages)
    async with served(tmp_path, "on") as client:
        for mode in ("micro", "full"):
            reply = await _compacted(client, messages=messages, mode=mode)
            messages = reply.get("messages") or messages
        later = [*messages, {"role": "assistant", "content": "Done."}]
        again = await _compacted(client, messages=later, mode="record", session_id=None)
    assert again["session_id"] == "s", "the list identifies its session"
    assert not _on_disk(tmp_path, GITHUB)


@given(st.integers(0, 560))
@settings(max_examples=12, deadline=None)
def test_with_on_no_cut_leaves_half_of_a_secret_on_disk(before_chars: int) -> None:
    async def compact_into(folder: Path) -> None:
        messages = conversation(14, 60)
        command = f"{'x' * before_chars} {GITHUB} && make{' a' * 300}"
        _call_of(messages)["input"]["command"] = command
        async with served(folder, "on") as client:
            await _compacted(client, messages=messages)

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(compact_into, Path(folder))
        for half in (GITHUB[: len(GITHUB) // 2], GITHUB[len(GITHUB) // 2 :]):
            assert not _on_disk(Path(folder), half)


@pytest.mark.parametrize("named", ["call", "session", "parent"])
async def test_with_on_an_id_that_holds_a_secret_is_refused_before_anything_is_written(
    tmp_path: Path, named: str
) -> None:
    messages = conversation(14, 60)
    more: Json = {"messages": messages}
    if named == "call":
        _call_of(messages)["id"] = messages[4]["content"][0]["tool_use_id"] = f"call_{GITHUB}"
    elif named == "session":
        more["session_id"] = GITHUB
    else:
        more["options"] = {"parent_session_id": GITHUB}
    async with served(tmp_path, "on") as client:
        read_arguments = {"mode": "full", "target_tokens": 4_000, "session_id": "s"} | more
        error = error_of(await client.call_tool("compact_messages", read_arguments))
    assert "a possible secret (github" in error
    assert GITHUB not in error
    assert not _on_disk(tmp_path, GITHUB)


def test_the_name_of_a_tool_stays_one_that_providers_take() -> None:
    call = {"type": "tool_use", "id": "c", "name": f"run_{GITHUB}", "input": {"name": GITHUB}}
    clean = redact_json(call)
    assert re.fullmatch(r"[\w-]{1,64}", clean["name"])
    assert clean["input"] == {"name": "[redacted: github pat]"}


@given(
    st.lists(st.one_of(st.text(max_size=40), st.sampled_from([GITHUB, ANTHROPIC]))),
    st.sampled_from([" ", "\n", "=", '"', ": "]),
)
def test_redacting_twice_is_redacting_once_and_leaves_no_known_secret(
    parts: list[str], between: str
) -> None:
    clean = redact(between.join(parts))
    assert redact(clean) == clean
    assert not find_secrets(clean)


# Places in which programs and users write a password that has no form of a provider.
ODD_PASSWORD = "horse7!battery2+staple"
PLACES_OF_PASSWORDS = (
    'export DB_PASSWORD="{}"',
    '{{"client_secret": "{}"}}',
    "postgresql://me:{}@db.internal:5432/x",
    "git clone https://me:{}@git.internal/x",
    "curl -sS -u me:{} https://x.internal",
    "curl --user 'me:{}' https://x.internal",
    "<server><password>{}</password></server>",
    '<add key="Mail.Password" value="{}" />',
    "define( 'DB_PASSWORD', '{}' );",
    "machine x.internal login me password {}",
)


@pytest.mark.parametrize("place", PLACES_OF_PASSWORDS)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_password_is_found_where_programs_take_it_and_in_the_json_of_a_call(
    place: str, depth: int
) -> None:
    text = place.format(ODD_PASSWORD)
    for _ in range(depth):  # as the arguments of a call: a string of JSON, in a string of JSON
        text = json.dumps({"command": text})
    clean = redact(text)
    assert "horse7" not in clean
    assert "staple" not in clean
    assert [secret.kind for secret in find_secrets(text)] != []


def test_the_credentials_of_docker_are_found_and_other_values_of_auth_are_not() -> None:
    auth = b64encode(f"me:{PASSWORD}".encode()).decode()
    configuration = json.dumps({"auths": {"x.internal": {"auth": auth}}})
    assert auth not in redact(configuration)
    assert not find_secrets('{"auth": "required"}')


def test_detector_finds_nearly_all_labelled_secrets() -> None:
    cases = labelled()
    missed = [(kind, text) for kind, text, secret in cases if not is_found(text, secret)]
    assert len(missed) <= 0.05 * len(cases), missed


def test_detector_finds_almost_no_secrets_in_code() -> None:
    library = Path(json.__file__).parent.parent
    texts = [path.read_text("utf-8", "replace") for path in sorted(library.glob("[a-h]*.py"))]
    found = [text[s.start : s.stop] for text in texts for s in find_secrets(text)]
    assert len(found) <= sum(map(len, texts)) / 100_000, found


@given(
    st.integers(0, 9_000), st.integers(0, 9_000), st.sampled_from(["x", " ", "ab ", "\\n", "key="])
)
@settings(max_examples=30, deadline=None)
def test_a_secret_is_found_wherever_it_is_in_a_long_line(
    before: int, after: int, filling: str
) -> None:
    line = f"{(filling * before)[:before]} {GITHUB} {ANTHROPIC} {(filling * after)[:after]}"
    clean = redact(line)
    assert GITHUB not in clean
    assert ANTHROPIC[-20:] not in clean
