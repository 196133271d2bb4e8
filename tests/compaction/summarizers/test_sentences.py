"""Entries of a summary: verbatim, not repeated, and marked if later words replace them."""

import re
from typing import Any

import pytest
from context_compaction import CompactRequest, compact
from context_compaction.messages import placeholders
from context_compaction.messages.model import Message, Text, text_of
from context_compaction.summarizers.instructions.find import BINDING_RANK, find_instructions
from context_compaction.summarizers.instructions.sentences import sentences_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import (
    agent,
    is_marked_replaced,
    newer_prevails,
    read,
    turn_with_call,
    user,
    user_words,
)

EXAMPLES = settings(max_examples=8)
MARK = re.compile(rf"\(changed[^)]{{0,20}}\) |{re.escape(placeholders.DIFFERS)}")
GAP = "[…]"
NAMES = ("backup", "billing", "mail", "search", "thumbnail", "export", "audit", "cleanup")
AGENT = re.compile(r"^(?:  |\[\d+\] )?agent(?:, last)?(?: \[\d+\])?: (.*)", re.MULTILINE)


async def compacted(payload: list[Json], **options: Any) -> list[str]:
    """Return the texts of the compacted `payload`, the summary first."""
    options = {"context_window": 200_000, "mode": "full", "format": "anthropic", **options}
    async with temporary_archive() as archive:
        result = await compact(payload, CompactRequest(**options), archive=archive)
    texts = [text_of(message.blocks) for message in read(result.messages)]
    assert texts[0].startswith("<context_summary ")
    return texts


async def summary_of(payload: list[Json], **options: Any) -> str:
    """Return the summary of `payload`."""
    return (await compacted(payload, **options))[0]


async def context_after(*texts: str) -> str:
    """Return the compacted context of a conversation with `texts` and two more requests."""
    return "\n".join(await compacted(talk(*texts, "Go on.", "And on.")))


def rules_in(*texts: str) -> list[str]:
    """Return the rules in `texts`, each in its own message of the user."""
    user_texts = (Message("user", (Text(text),)) for text in texts)
    return [rule.text for rule in find_instructions(tuple(user_texts)).rules]


def talk(*texts: str) -> list[Json]:
    """Return a conversation with one turn for each of `texts`."""
    turns = [message for n, text in enumerate(texts) for message in turn_with_call(n, text)]
    return [*turns, user("And now?")]


def entries_of(summary: str) -> list[str]:
    """Return the texts of the user and the agent in a summary, without marks."""
    texts = [*user_words(summary), *AGENT.findall(summary)]
    return [MARK.sub("", text) for text in texts]


NUMBERS = st.integers(1, 9_999)
WORDS = st.sampled_from(["parser", "lexer", "Redis", "invoice", "queue", "São Paulo", "mailer"])
FORMS = st.sampled_from([
    "The budget is ${n}.",
    "Never spend more than {n}.5% on the {w}.",
    "Alert me only if the {w} load is > {n} ms.",
    "The range is {n} - 9000 for the {w}.",
    "My user id is {w}_{n}.",
    "Only Python 3.{n} may run the {w}.",
    "It was due on April {n}, 2001.",
    "Keep --force-{n} and **{w}** as they are.",
    "5. Mai {n} ist der Tag der Abgabe.",
    "> {n}% of the {w} must be covered!",
    "2) Always log the {w} at level {n}.",
    "Is the {w} at {n}?",
    "No. {w} {n} it is.",
    "必须在{n}秒内完成。",
    "-{n} degrees is the limit of the {w}.",
])  # fmt: skip


def sentence_of(form: str, number: int, word: str) -> str:
    return form.format(n=number, w=word)


SENTENCES = st.builds(sentence_of, FORMS, NUMBERS, WORDS)
TURNS = st.lists(
    st.tuples(
        st.sampled_from([" ", "\n", "\n- ", "\n\n", "\n* "]), st.lists(SENTENCES, min_size=1)
    ),
    min_size=1,
    max_size=5,
)


@EXAMPLES
@given(TURNS)
async def test_summary_has_only_sentences_of_the_conversation(
    turns: list[tuple[str, list[str]]],
) -> None:
    payload = talk(*(joint.join(sentences) for joint, sentences in turns))
    user_texts = [" ".join(str(text).split()) for text in texts_in(payload)]
    known = sorted({s for _, sentences in turns for s in sentences}, key=len, reverse=True)
    for line in entries_of(await summary_of(payload)):
        for part in line.split(GAP):
            rest = part.strip()
            if any(rest in text for text in user_texts):
                continue
            for sentence in known:  # several of one paragraph may be joined
                rest = rest.replace(sentence, "")
            assert not rest.strip(), (line, rest)


def texts_in(payload: list[Json]) -> list[str]:
    """Return every text, call and result in `payload`."""
    contents = (message["content"] for message in payload)
    blocks = (
        block
        for content in contents
        for block in ([{"text": content}] if isinstance(content, str) else content)
    )
    return [_text_in(block) for block in blocks]


def _text_in(block: Json) -> str:
    if block.get("type") == "tool_use":
        arguments = ", ".join(f"{key}={value}" for key, value in block["input"].items())
        return f"{block['name']}({arguments})"
    return str(block.get("text") or block.get("content"))


@EXAMPLES
@given(TURNS, st.sampled_from([3_000, 8_000, None]))
async def test_summary_has_no_entry_twice(
    turns: list[tuple[str, list[str]]], target_tokens: int | None
) -> None:
    texts = [joint.join(sentences) for joint, sentences in turns]
    summary = await summary_of(talk(*texts, *texts), target_tokens=target_tokens)
    # A message of the user is shown verbatim, with its repeated lines.
    entries = [line for line in summary.splitlines() if re.match(r"\[\d", line)]
    assert len(entries) == len(set(entries))


# Sentences that differ in a subject and a value only.
SERIES = st.sampled_from([
    "Set the timeout of the {s} client to {v} seconds.",
    "Give {s} a refund of {v} dollars.",
    "Server {s} must listen on port {v}.",
    "Rename column {s}{v} to {s}{v}_old.",
    "The {s} team always gets {v} seats.",
    "Now fix the bug in file {s}.py, line {v}.",
    "Never let {s} use more than {v} GB of memory.",
    "Der Dienst {s} muss auf Port {v} hören.",
    "Please summarise chapter {v} of the book on {s} for me.",
    "Please run test number {v} of {s} again.",
])  # fmt: skip
SUBJECTS = st.lists(
    st.sampled_from(["billing", "search", "mail", "Anna", "B", "C", "gateway", "report"]),
    min_size=2,
    max_size=6,
    unique=True,
)


@EXAMPLES
@given(SERIES, SUBJECTS, st.integers(2, 900))
async def test_sentences_of_a_series_stay_unmarked(
    form: str, subjects: list[str], first: int
) -> None:
    user_texts = [form.format(s=subject, v=first + 7 * n) for n, subject in enumerate(subjects)]
    context = await context_after(*user_texts)
    assert [text for text in user_texts if text not in context] == []
    assert [text for text in user_texts if is_marked_replaced(text, context)] == []


PROHIBITIONS = st.sampled_from([
    "Never store {s} in Redis.",
    "Do not flush Redis while the {s} are being sent.",
    "The {s} must not leave the Redis cluster.",
    "Don't let anybody read the {s} from Redis.",
    "No {s} may stay in Redis longer than an hour.",
    "From now on no {s} go through Redis any more.",
])  # fmt: skip


@EXAMPLES
@given(st.lists(PROHIBITIONS, min_size=2, max_size=2, unique=True), WORDS)
async def test_two_prohibitions_are_both_in_force(forms: list[str], subject: str) -> None:
    user_texts = [form.format(s=f"{subject} records") for form in forms]
    context = await context_after(*user_texts)
    for text in user_texts:
        assert text in context
        assert not is_marked_replaced(text, context)


CORRECTIONS = st.sampled_from([
    ("Use {x} for the exports.", "No, use {y} instead of {x} for the exports."),
    ("Use {x}.", "No, use {y} instead of {x}."),
    ("The exports are made with {x}.", "The exports are made with {y}, not with {x}."),
    ("Always write the exports to {x}.", "Actually, always write the exports to {y}."),
    ("The limit is {n} requests.", "Correction: the limit is {m} requests."),
])  # fmt: skip
TOOLS = st.permutations(["Postgres", "tabs", "alpha_lib", "Rust", "parquet"])


@EXAMPLES
@given(CORRECTIONS, TOOLS, st.integers(1, 90))
async def test_corrected_sentence_is_marked_or_before_its_correction(
    pair: tuple[str, str], tools: list[str], number: int
) -> None:
    x, y, *_ = tools
    older, newer = (form.format(x=x, y=y, n=number, m=number + 100) for form in pair)
    context = await context_after(older, newer)
    assert newer in context
    assert newer_prevails(older, newer, context)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The Berlin office closes at six.", "Actually, the Madrid office closes at eight."),
        ("Use Redis for the sessions.", "For the tests use a mock instead of Redis."),
        ("Set the timeout of the mail client to 30 s.", "No, set that of the web client to 45 s."),
        ("Store the backups in Frankfurt.", "Do not move the backups out of Frankfurt by day."),
        ("Server A must listen on port 8001.", "Actually, server B must listen on port 8002."),
    ],
)
async def test_both_sentences_stay_when_correction_is_doubtful(older: str, newer: str) -> None:
    context = await context_after(older, newer)
    assert older in context
    assert newer in context


@pytest.mark.parametrize(
    "sentence",
    [
        "hm, i selected the theme and got a crash, that should never happen.",
        "I must have lost the number of my order.",
        "I'd prefer to pay with the gift card.",
        "Could you always show me the total?",
        "Please cancel it, I no longer need the boots.",
        "No code changes yet.",
        "Don't touch the schema for now.",
        "Don't change code now, only tell me what is wrong.",
        "The white box around the zone never disappears on export.",
        "Make a rule that says to never use grep on JSON output.",
        "Look at how you can update the guide so that it is always read.",
        "Always run the sync before we continue with this step.",
        "If you must use the old server, mind the difference in paths.",
        "No tasks found in the list.",
        "Don't write any code yet, just show me how it works.",
        "No, don't rename the helper.",
        "It must be due to the new cache.",
        "(a) Item 5, plain `pytest` must run the doctests.",
        "The last unit must not overflow to a unit that doesn't exist.",
        "Q4: ja, mach den Dativ, und Sprachen ohne den Kontext müssen bleiben, wie sie sind.",
        "Sehr schön, das mit den Leichen wäre uns nie aufgefallen.",
        'Auf Deutsch ist "%s from now on" eben "%s ab jetzt", das sagt kein Mensch.',
        "Never mind, we will look at it later.",
        "Serwer nie działa.",
        "Alles andere bekommt no-cache (also immer nachfragen).",
        "Always calls usage() after it fails, so the flags of the root are shown.",
        "La page est toujours blanche.",
        "Les nœuds n'apparaissent toujours pas.",
        "Yo nunca te pedí tres archivos.",
        "Der Knopf ist immer noch grau.",
        "Immer wenn ich speichere, stürzt der Editor ab.",
        "Siempre que guardo, el editor se cierra.",
        "Sempre que eu salvo, o editor trava.",
        "Nunca había visto un build tan rápido.",
        "Nunca funcionou no meu computador.",
        "Mai visto un errore così.",
        "Super, jamais je n'aurais trouvé ça tout seul !",
        "すごい、自分では絶対に思いつかなかった。",
    ],
)
def test_report_question_or_single_wish_is_not_a_rule(sentence: str) -> None:
    assert rules_in(sentence, "Never push to the main branch.") == [
        "Never push to the main branch."
    ]


@pytest.mark.parametrize(
    ("text", "binding"),
    [
        ("Backups must stay encrypted. I lost a laptop last spring.", 2),
        ("Backups must stay encrypted. Is the laptop back?", 1),
        ("The index takes minutes to load, I've measured that twice.", 1),
        ("Keep the header narrow, and I'll draw the logo.", 1),
        ("I've read the offer again, and my partner says that dinners must end by eight.", 1),
        ("Could you keep the answers short?", 1),
        ("Could you tell me the total?", 0),
        ("Leave the old folder as it is, okay?", 1),
        ("Si llueve, cierra las ventanas.", 1),
        ("Sí, gracias.", 0),
        ("Oh, really?", 0),
        ("Sorry, I don't have the number at hand.", 0),
    ],
)
def test_sentence_binds_when_its_statement_is_no_small_talk(text: str, binding: int) -> None:
    messages = (Message("user", (Text(text, author="user"),)),)
    ranks = [sentence.rank for sentence in find_instructions(messages).candidates]
    assert sum(rank >= BINDING_RANK for rank in ranks) == binding


async def test_rules_stay_when_orders_compete_for_a_small_target() -> None:
    rules = [f"The {name} job must run after {n} pm." for n, name in enumerate(NAMES)]
    orders = [f"Show me page {n} of the report on {'trees ' * 40}." for n in range(10)]
    turns = [user(f"Draw {'trees ' * 180}."), *map(user, (*rules, *orders))]
    payload = [message for turn in turns for message in (turn, agent("Done."))]
    texts = await compacted([*payload, user(f"Draw {'hills ' * 180}.")], target_tokens=800)
    assert [rule for rule in rules if not any(rule in text for text in texts)] == []


LEADS = st.sampled_from([
    "House rules, they hold for everything you do here:", "## Constraints", "**Conventions:**",
    "Read the code first. Rules for the whole work:", "Please stick to these rules:",
    "Regeln, gelten für alles hier:", "Reglas para todo el trabajo:", "规则：",
])  # fmt: skip
LISTED = st.lists(
    st.sampled_from([
        "one commit per item, tests included", "no new dependency. The standard library only.",
        "PLAN.md is current at any time", "ein Commit je Punkt, auf Englisch",
        "don't touch the files under .github", "p95 stays under 400 ms", "nada se publica",
    ]),
    min_size=1,
    max_size=7,
    unique=True,
)  # fmt: skip


@EXAMPLES
@given(LEADS, LISTED, st.sampled_from(["- ", "* ", "1. "]), st.sampled_from(["\n", "\n\n"]))
def test_items_of_a_list_of_rules_are_rules_and_later_lines_are_not(
    lead: str, items: list[str], bullet: str, gap: str
) -> None:
    listed = "\n".join(f"{bullet}{item}" for item in items)
    other = "Open points:\n- the flag of the parser\n- the name of the branch"
    rules = rules_in(f"{lead}{gap}{listed}\n\nStart with the parser.\n\n{other}")
    assert [rule.removeprefix("1. ") for rule in rules] == items


@EXAMPLES
@given(
    LISTED,
    st.sampled_from([
        "Fix the validation rules:",
        "Open points:",
        "He broke rules",
        "Jetzt ein paar Änderungen, die ab sofort gelten:",
        "Guidelines (see there):",
    ]),
)
def test_items_of_another_list_are_not_rules(items: list[str], lead: str) -> None:
    assert rules_in("\n".join([lead, *(f"- {item}" for item in items)])) == []


REVERSALS = st.sampled_from([
    ("A small status server on port {n}.", "Port: not {n}, that's taken; use {m}."),
    ("Requirements: a backup with keep={n}.", "keep: make the default {m}, not {n}."),
    ("One commit per item, message prefix 'kestrel: '.",
     "And forget what I said about commit messages and test files."),
    ("Commit subjects begin with 'a{n}: '.", "Forget the commit subjects of mine."),
    ("Commit messages in German, one change each.",
     "And from now on commit messages in English, Jana from Dublin reads along."),
    ('Ein Commit je Punkt, Präfix "a{n}: ".', 'Commit-Präfix ab jetzt "b{n}: " statt "a{n}: ".'),
])  # fmt: skip


@EXAMPLES
@given(REVERSALS, st.integers(1, 40), st.booleans())
async def test_withdrawn_rule_is_marked_and_not_pinned(
    pair: tuple[str, str], number: int, is_between: bool
) -> None:
    older, newer = (form.format(n=number + 50, m=number + 100) for form in pair)
    between = ["Good. Now the parser, please.", "Run the tests again."] if is_between else []
    user_texts = f"Rules for the whole work:\n- {older}\n- nothing is pushed"
    context = await context_after(user_texts, *between, newer)
    assert is_marked_replaced(older, context)
    assert not is_marked_replaced("nothing is pushed", context)
    rules = context.partition("## User rules")[2].partition("</pinned>")[0]
    assert older not in rules
    assert "nothing is pushed" in rules


ERRANDS = st.lists(
    st.sampled_from([
        "Good. Fix the commit of item {n} first, and write it into PLAN.md as item {m}.",
        "The prefix of item {n} is fine, one commit for all this.",
        "Now item {n}: tests in a new file, and run the suite twice.",
        "Don't change code now, only show me the tests of item {n}.",
        "What do the {n} dependencies cost us in commit {m}?",
        "Only commit {n} is red, not {m}.",
    ]),
    min_size=1,
    max_size=5,
)  # fmt: skip


@EXAMPLES
@given(ERRANDS, st.integers(1, 60))
def test_rules_stay_unchanged_when_later_requests_mention_them(
    errands: list[str], number: int
) -> None:
    rules = ["One commit per item, prefix 'a: '.", "No new dependencies.", "PLAN.md is current."]
    user_texts = "\n".join(["Rules for the whole work:", *(f"- {rule}" for rule in rules)])
    later = [errand.format(n=number, m=number + 3) for errand in errands]
    assert set(rules) <= set(rules_in(user_texts, *later))


@pytest.mark.parametrize(
    "sentence",
    [
        "Réponds toujours en français.",
        "Ne pousse jamais sur main.",
        "Siempre usa la rama develop.",
        "No toques la base de producción nunca.",
        "No uses nunca la rama develop.",
        "Immer erst die Tests.",
        "Non cancellare mai i log.",
        "Sempre responda em português.",
        "Ab sofort nur noch Englisch im Code.",
        "Fehler sollen nie verschluckt werden.",
        "Les dates doivent toujours être en UTC.",
        "À partir de maintenant, pas de commits le vendredi.",
        "El título debe siempre empezar en mayúscula.",
        "A partir de agora use apenas a API nova.",
        "今後はコメントを英語で書いてください。",
    ],
)  # fmt: skip
def test_lasting_rule_is_recognized_in_each_language(sentence: str) -> None:
    assert rules_in(sentence) == [sentence]


HARD = ("-", "- ", "*", ">", " ", "a", "1", "1.", "a.", '"', "'", "[", "A b", "not ", "，", "\t")


@pytest.mark.parametrize("unit", HARD)
@pytest.mark.parametrize("end", ["", "x", " x.", "\n"])
def test_very_long_text_is_split_in_linear_time(unit: str, end: str) -> None:
    text = unit * (500_000 // len(unit)) + end  # a time limit of the suite fails slower code
    for is_typed in (False, True):
        assert all(len(part.text) <= 600 for part in sentences_of(text, is_typed=is_typed))
