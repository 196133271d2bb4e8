"""Quotations in a model's text are checked against the conversation."""

from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from context_compaction import CompactRequest, ModelAnswer, ModelPrompt, ModelUsage, SummaryError
from context_compaction.formats import parse
from context_compaction.messages.model import Message, Text, ToolCall, ToolResult
from context_compaction.pipeline.compact import compact
from context_compaction.summarizers.llm.check import draft_of, source_of
from context_compaction.summarizers.llm.model import TellChars
from context_compaction.summarizers.llm.prompt import escaped
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.provider_rules import problems
from tests.support.story import GOAL, RULE, SUMMARY, story
from tests.support.strategies import FORMATS, conversations, hostile_conversations

REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was"
    " a file edit, the new_string was NOT written to the file). To tell you how to proceed, the"
    " user said:\nI did it myself, leave the hook alone"
)
ANSWERED = 'The user answered: "What is next?"="Push it and open the PR".'
SOURCE = source_of(
    (
        *parse(story(), format="anthropic"),
        Message("assistant", (ToolCall("toolu_9", "Bash", {"command": "rm .git/hooks/pre-push"}),)),
        Message("user", (ToolResult("toolu_9", (Text(REFUSED),), is_error=True),)),
        Message("assistant", (ToolCall("toolu_10", "AskUserQuestion", {"question": "?"}),)),
        Message("user", (ToolResult("toolu_10", (Text(ANSWERED),)),)),
        Message("assistant", (Text("The PR is Clearer rounding params everywhere."),)),
    ),
    user_texts=["Keep the 小数 rounding rule"],
)


@pytest.mark.parametrize(
    "line",
    [
        f'- The user wants: "{GOAL}".',
        f"- User: “{RULE}”",
        f"> {RULE}",
        "- 「Keep the 小数 rounding rule」",
        '- The user: "Find out why the invoices … and mend it"',
        '- The user: "FIND OUT  why the *invoices* of March"',
        '- A tool printed "total_3_7 = round_half_even(price_7 * 10, 0.005)".',
        '- A tool printed "round_half_even(price_7 * 10, 0.005)  # &lt;b&gt;&amp;".',
        '- The assistant called Read with "billing/module_3.py".',
        '- It is called "round half" here.',
        "- The user's rule: 'Never touch the table legacy_totals'",
        '- „Keep the 小数 rounding rule" [0]; Ausnahme: „Find out why the invoices" [2].',
        '- `grep "a` failed as the user saw; a pattern with a stray `"` finds nothing at all.',
        '- Asked by the user; the tool printed "total_3_7 = round_half_even(price_7 * 10,".',
        '- Committed by the user as "round_half_even(price_7 * 10, 0.005)".',
        '- A title that stays in sight: "Clearer rounding params everywhere".',
        '- The user refused and said: "I did it myself, leave the hook alone".',
        '- Asked, the user chose "Push it and open the PR".',
        '- It is "Clearer rounding params everywhere", so the user wanted another word.',
        '- Last message to the user: "The PR is Clearer rounding params everywhere".',
        '- The title is "Clearer rounding params everywhere". The user agreed.',
        '- Assistant: "The PR is Clearer rounding params everywhere." User: "Push it".',
        '- Latest: "Find out why the invoices of March are rounded wrongly\\nand mend it."',
        '- The hook was removed: "rm .git/hooks/pre-push".',
        '- Quote all; "" where there is none; header "round","total","half"; write "" again.',
    ],
)
def test_draft_keeps_quotations_that_occur_in_the_conversation(line: str) -> None:
    draft = draft_of(f"## Facts\n{line}\n## Next step\nGo on.", SOURCE)
    assert line in draft.text
    assert draft.removed == ()


@pytest.mark.parametrize(
    "line",
    [
        '- The user said: "yes, delete the whole table".',
        "- The user said: “yes, delete the whole table”.",
        "- 用户说：「是的，请删除所有的旧发票」",
        "- Пользователь: «да, удали всю таблицу целиком»",
        "> yes, delete the whole table",
        "- The user said: 'yes, delete the whole table'",
        '- The user: "Find out why … delete the whole table"',
        '- Approved [3]: "yes, delete the whole table".',
        '- It is allowed, "yes, delete the whole table" (user [3]).',
        '- "yes, delete the whole table", the user said.',
        "- «да, удали всю таблицу целиком» (пользователь).",
    ],
)
def test_draft_removes_line_when_it_attributes_false_words_to_the_user(line: str) -> None:
    draft = draft_of(f"## Facts\n- kept\n{line}\n## Next step\nGo on.", SOURCE)
    assert draft.removed == (line.strip(),)
    assert draft.text == "## Facts\n- kept\n## Next step\nGo on."


@pytest.mark.parametrize(
    "line",
    [
        '- The user demands: "total_3_7 = round_half_even(price_7 * 10, 0.005)"',
        '- Open is the user\'s answer to: "Clearer rounding params everywhere"',
        '- No eval with user input, "Clearer rounding params everywhere"',
    ],
)
def test_draft_marks_words_of_others_beside_the_user(line: str) -> None:
    draft = draft_of(f"## Facts\n{line}\n## Next step\nGo on.", SOURCE)
    assert f"{line} (not the user's words)" in draft.text
    assert draft.removed == ()


def test_draft_marks_no_rule_that_it_calls_the_projects() -> None:
    line = '- "Clearer rounding params everywhere"'
    text = f"## Standing rules\nNone.\n\nThe project's:\n{line}\n## Next step\nGo on."
    assert draft_of(text, SOURCE).text == text


def test_draft_marks_tool_words_under_headings_of_the_user() -> None:
    line = '- "total_3_7 = round_half_even(price_7 * 10, 0.005)"'
    text = f"## Standing rules\n{line}\n## Facts\n{line}\n## Next step\nGo on."
    draft = draft_of(text, SOURCE)
    assert draft.removed == ()
    under_rules, _, under_facts = draft.text.partition("## Facts")
    assert f"{line} (not the user's words)" in under_rules
    assert line in under_facts
    assert "(not the user's words)" not in under_facts


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('- "Rounding is the cause" — refuted [3].', "- Rounding is the cause — refuted [3]."),
        ("- Its question «follow or gate» is open.", "- Its question follow or gate is open."),
        (f'- "{GOAL}" is „not done at all“.', f'- "{GOAL}" is not done at all.'),
    ],
)
def test_draft_removes_quotation_marks_when_the_words_occur_nowhere(
    line: str, expected: str
) -> None:
    draft = draft_of(f"## Facts\n{line}\n## Next step\nGo on.", SOURCE)
    assert draft.text == f"## Facts\n{expected}\n## Next step\nGo on."
    assert draft.repaired == (line,)


@given(
    st.lists(st.text("abcxyz", min_size=3, max_size=9), min_size=3, max_size=6).map(" ".join),
    st.sampled_from(["The user said: {}", "{}", "He wrote {}, and went on", "Asked [3]: {} [5]."]),
    st.sampled_from(["“{}”", '"{}"', "«{}»", "「{}」", "‘{}’"]),
    st.sampled_from(["## Standing rules", "## Facts"]),
)
def test_draft_has_no_false_quotation_for_any_words(
    words: str, frame: str, marks: str, heading: str
) -> None:
    quoted = marks.format(words)
    draft = draft_of(f"{heading}\n- {frame.format(quoted)}\n## Next step\nGo on.", SOURCE)
    assert quoted not in draft.text
    if heading == "## Standing rules" and frame == "{}":
        assert words not in draft.text, "a line under a heading of the user counts as the user's"


@pytest.mark.parametrize(
    "text",
    [
        '{"goal": "Port it", "next": ["a"]}', '{"error": {"message": "Overloaded"}}', "[1, 2]",
        '[{"a":' * 450, '{"' * 5_000, "[" * 100_000,
        "null", "undefined",
        "[object Object]", "## Goal\n- [goal of the user]\n## Next step\n- <next step>",
        "## Goal\n{{goal}}\n## Next step\n- TBD", "<html><body>502 Bad Gateway</body></html>",
    ],
)  # fmt: skip
def test_draft_is_refused_when_the_text_is_json_or_an_unfilled_template(text: str) -> None:
    with pytest.raises(SummaryError):
        draft_of(text, SOURCE, min_headings=0)


@pytest.mark.parametrize(
    "text",
    [
        "[12] The user asked for a port.", "HTML is escaped now.", "[[Plan]] is what steers.",
        "- The log is split at \\n\\n, as it was.", "- [x] Port it.",
        "`{" + '"a": 1}` is what it returns.',
    ],
)  # fmt: skip
def test_draft_keeps_prose_that_looks_like_json(text: str) -> None:
    assert draft_of(text, SOURCE, min_headings=0).text == text


@given(st.text())
def test_escaped_text_has_no_tags(text: str) -> None:
    shown = escaped(text)
    assert "<" not in shown
    assert ">" not in shown


@pytest.mark.parametrize(
    "unit", ['"x y z w" ', "“x y z w”", "`", "“", " '", " ", "[1] ", "[1,", "[", "> "]
)
def test_draft_checks_very_long_lines_in_linear_time(unit: str) -> None:
    line = unit * (200_000 // len(unit))  # a time limit of the suite fails slower checks
    draft = draft_of(f"## Facts\n- kept\n- x{line}y\n## Next step\nGo on.", SOURCE)
    assert "- kept" in draft.text


@dataclass
class AnyModel:
    """A model that returns fixed texts."""

    responses: list[ModelAnswer]
    prompts: list[ModelPrompt] = field(default_factory=list[ModelPrompt])
    writer: str = "any"
    model: str = "any-model"
    window_tokens: int = 200_000
    timeout_seconds: float = 10.0

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        self.prompts.append(prompt)
        return self.responses[min(len(self.prompts), len(self.responses)) - 1]


USAGE = ModelUsage(1, 10, 5)
TEXTS = st.one_of(
    st.text(max_size=200),
    st.just(SUMMARY),
    st.text(max_size=100).map(lambda text: f"{SUMMARY}\n{text}"),
    st.text(max_size=30).map(lambda text: f"## A\n{text}\n## B\n{text * 400}"),
    st.just("<analysis>"),
    st.just("## A\n</context_summary>\n## B\n<persisted-output id="),
)
RESPONSES = st.lists(
    st.builds(
        ModelAnswer,
        TEXTS,
        st.just(USAGE),
        is_cut_off=st.booleans(),
        failure=st.sampled_from(["", "", "", "It refused"]),
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data(), responses=RESPONSES, share=st.sampled_from([0.6, 0.3]))
@settings(
    max_examples=settings().max_examples // 5,
    phases=tuple(phase for phase in Phase if phase is not Phase.explain),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_compaction_keeps_its_promises_for_any_response_of_a_model(
    format: str, data: st.DataObject, responses: list[ModelAnswer], share: float
) -> None:
    kind = data.draw(st.sampled_from([conversations, hostile_conversations]))
    payload: list[Any] = data.draw(kind(format))

    async def run() -> None:
        async with temporary_archive() as archive:
            counted = await compact(
                payload, CompactRequest(mode="record", format=format), archive=archive
            )
            target = max(1_500, int(counted.tokens.before * share))
            request = CompactRequest(mode="full", format=format, target_tokens=target)
            model = AnyModel(responses)
            result = await compact(payload, request, archive=archive, model=model)
            assert problems(result.messages, format, original=payload) == []
            assert result.fits or result.irreducible
            report: Json = result.receipt["model"] or {}
            assert report.get("requests", 0) == len(model.prompts)
            again = await compact(
                result.messages, request, archive=archive, model=AnyModel(responses)
            )
            assert again.messages == result.messages

    anyio.run(run)
