"""Counts of text and messages: any input, additive, by block type, cautious if unknown."""

import json
import math

import pytest
from context_compaction import formats
from context_compaction.messages.model import (
    Block,
    Document,
    Image,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    edit_message,
    edit_result,
    make_message,
)
from context_compaction.request import EstimatorName
from context_compaction.tokens.counter import (
    counter_for,
    message_bytes,
    request_count,
)
from context_compaction.tokens.models import (
    model_counter,
    o200k_count,
    profile_for,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.converted import PROVIDER_FORMATS

any_text = st.text(st.characters(exclude_categories=()), max_size=400)  # lone surrogates too
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
json_objects = st.dictionaries(st.text(max_size=8), json_values, max_size=3)
blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(Text, any_text),
    st.builds(Thinking, any_text, st.none() | any_text),
    st.builds(ToolCall, st.text(max_size=8), st.text(max_size=12), json_objects | any_text),
    st.builds(ToolResult, st.text(max_size=8), st.tuples(st.builds(Text, any_text))),
    st.builds(Opaque, st.text(max_size=8), json_objects),
)
media_blocks: st.SearchStrategy[Block] = st.one_of(
    st.builds(Image, st.just("image/png"), st.none() | any_text, st.none() | any_text),
    st.builds(Document, st.just("text/plain"), any_text, st.none() | any_text, any_text),
)
conversations = st.lists(
    st.builds(
        Message,
        st.sampled_from(("system", "user", "assistant")),
        st.lists(blocks | media_blocks, max_size=3).map(tuple),
    ),
    max_size=5,
).map(tuple)
models = st.sampled_from([None, "gpt-4o", "gpt-4", "claude-opus-4-8", "claude-3-haiku", "gemini-3"])
estimators: st.SearchStrategy[EstimatorName] = st.sampled_from(["auto", "chars/4", "chars/3"])


@settings(deadline=None)  # the first example loads the vocabulary
@given(any_text, models, estimators)
def test_any_text_has_a_count(text: str, model: str | None, estimator: EstimatorName) -> None:
    assert 0 <= counter_for(model, estimator=estimator).text(text) <= 6 * len(text)


@pytest.mark.parametrize(
    "text",
    [
        " " * 1_000_000,
        "\n" * 1_000_000 + "x",
        "<|endoftext|>" * 1_000,
        "\ud800\udc00 half \udfff",
        json.dumps({"line": list(range(150_000))}),
    ],
    ids=["a million spaces", "a million newlines", "control tokens", "surrogates", "1 MB line"],
)
def test_text_that_breaks_tokenizers_is_counted(text: str) -> None:
    assert 0 < counter_for("gpt-4o").text(text) <= len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("model", "factor", "method"),
    [
        ("gpt-4o", 1.0, "o200k*1.00/openai"),
        ("claude-sonnet-4-5", 1.22, "o200k*1.22/claude-3"),
        ("claude-opus-4-8", 1.5, "o200k*1.50/claude"),
        ("my-own-model", 1.5, "o200k*1.50/unknown"),
        (None, 1.5, "o200k*1.50/unknown"),
    ],
)
def test_method_names_the_factor_and_the_family_of_the_model(
    model: str | None, factor: float, method: str
) -> None:
    counter = counter_for(model)
    text = "def add(a, b):\n    return a + b\n" * 40

    assert counter.method == method
    assert counter.text(text) == math.ceil(o200k_count(text) * factor)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. " * 9, 1.7, 1.8),
        ("يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. " * 9, 2.0, 2.1),
        ("सभी मनुष्यों को गौरव और अधिकारों के मामले में स्वतन्त्रता प्राप्त है। " * 9, 2.3, 2.45),
        ("人人生而自由，在尊严和权利上一律平等。" * 9, 1.45, 1.55),
        ("Alle Menschen sind frei und gleich an Würde und Rechten geboren. Für üble " * 9, 2, 2),
        ("Tất cả mọi người sinh ra đều được tự do và bình đẳng. " * 9, 1.0, 1.0),
        ("All human beings are born free and equal in dignity. →" * 9, 1.5, 1.5),
    ],
    ids=["Korean", "Arabic", "Hindi", "Chinese", "German", "Vietnamese", "English"],
)
def test_other_scripts_have_the_measured_factors_of_claude(
    text: str, least: float, most: float
) -> None:
    raw = o200k_count(text)

    assert raw * least <= counter_for("claude-opus-4-8").text(text) <= raw * most + 1
    assert counter_for("gpt-4o").text(text) == raw


@settings(deadline=None)
@given(any_text, st.sampled_from(["gpt-4o", "claude-opus-4-8", "claude-3-haiku"]))
def test_cached_count_equals_a_new_count(text: str, model: str) -> None:
    counter = counter_for(model)
    long = text * 3 + "long enough to be remembered by its hash" * 5

    for each in (text, long):
        fresh = model_counter(profile_for(model)).count(each)
        assert [counter.text(each), counter.text(each)] == [fresh, fresh]


@settings(deadline=None)
@given(conversations, conversations, models, estimators)
def test_counts_add_up_exactly(
    first: tuple[Message, ...],
    second: tuple[Message, ...],
    model: str | None,
    estimator: EstimatorName,
) -> None:
    counter = counter_for(model, estimator=estimator)
    base = counter.messages(())

    assert counter.messages(first + second) == (
        counter.messages(first) + counter.messages(second) - base
    )
    assert counter.messages(first) == base + sum(map(counter.message, first))


def test_overhead_counts_system_prompt_and_tools_in_any_form() -> None:
    counter = counter_for("claude-opus-4-8")
    prompt = "You are a careful engineer. " * 30
    tools = [{"name": "read", "description": "Read a file.", "input_schema": {"type": "object"}}]

    assert counter.overhead() == 0
    assert counter.overhead(system=prompt) == counter.text(prompt)
    assert counter.overhead(system=[{"type": "text", "text": prompt}]) >= counter.text(prompt)
    assert counter.overhead(system=prompt, tools=tools) > counter.text(prompt) + 600


@settings(deadline=None)
@given(conversations, models, estimators, st.integers(0, 50_000))
def test_upper_estimate_is_not_below_the_estimate(
    messages: tuple[Message, ...], model: str | None, estimator: EstimatorName, overhead: int
) -> None:
    counter = counter_for(model, estimator=estimator)

    requests = request_count(messages, counter, overhead_tokens=overhead, anchor=None)
    estimate = requests.estimate(messages)

    assert estimate.tokens == counter.messages(messages) + overhead
    assert estimate.tokens <= estimate.upper <= math.ceil(estimate.tokens * 1.25)
    assert estimate.method == counter.method


def request_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.parametrize("format", PROVIDER_FORMATS)
def test_bytes_of_an_edited_message_are_a_close_upper_estimate(format: str) -> None:
    text = 'A "quoted" line\twith ünïcode\n' * 200
    call = Message("assistant", (ToolCall("c1", "run", {"command": text}),))
    result = ToolResult("c1", (Text("old"),))
    answer = edit_message(Message("user", (result,)), [edit_result(result, text)])
    for message in (make_message("user", text), call, answer):
        sent = len(request_json(formats.render((message,), format=format)))

        assert sent <= message_bytes(message) <= sent * 1.2 + 500
