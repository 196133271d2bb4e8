"""Check a model's text: whether it is a summary, and whether it agrees with the conversation.

A model's text is never trusted. It may be empty, a refusal or an error message, invent consent
("the user said: go ahead and delete it"), or attribute a tool's words to the user. A line that
quotes the user, or introduces words like speech, is removed as a whole if the words occur nowhere,
because its claim is wrong too. If somebody else said them, they are marked as not the user's: the
line may be true, such as "waits for the user's answer to" a question. Any other quotation that
occurs nowhere loses only its quotation marks, because such a line is usually true in other words.
If nothing remains, the deterministic summary takes over. A claim that the user approved something
is a flaw if the user never agreed to anything. File names and figures that occur nowhere are only
reported, because a summary may count things, or name them in its own way.

Numbers of messages are not checked. A rule that a name of the line must be near the message removed
one reference in six from good summaries, and no false one.
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from context_compaction.activity.calls import is_question
from context_compaction.activity.outcome import refusal_comment
from context_compaction.errors import SummaryError
from context_compaction.messages import placeholders
from context_compaction.messages.model import Messages, one_line, result_text, tool_results
from context_compaction.messages.names import kind_of, names_in
from context_compaction.messages.tool_pairs import index_calls, with_unique_call_ids
from context_compaction.summarizers.extractive.render import escape_entries
from context_compaction.summarizers.instructions.sentences import own_words
from context_compaction.summarizers.llm.prompt import parts_of

# What models and programs write when they have nothing to say, as `_folded` returns it.
_EMPTY_WORDS = ("", "none", "n a", "nothing", "null", "undefined", "object object", "tbd", "todo")
_REFUSAL = re.compile(
    r"\A<(?:!doctype|html)\b|\A[\[{]\s*[\"{]"
    r"|\A\W*(?:i['’]?m sorry|i am sorry|sorry|unfortunately|i apologi[sz]e"
    r"|i can(?:['’]t|not)\b"
    r"|i(?:['’]m| am) (?:unable|not able)|i won['’]t|as an ai\b|api error|error\b|type\W+error"
    r"|internal server error|overloaded|rate limit|抱歉|对不起|很抱歉|申し訳|lo siento|désolé"
    r"|es tut mir leid|к сожалению|извините)",
    re.IGNORECASE,
)
# A line that is a block quotation, code, or a quotation. Code is matched because quotation marks in
# it quote nothing. An empty pair of marks is matched, so that the marks after it are paired.
_QUOTATION = re.compile(
    r"\A\s*(?:[-*] )?> ?(.+)|`[^`\n]*`"
    r"|“([^“”\n]*)”|„([^„“”\n]*)[“”]|„([^„\"\n]*)\"|«([^«»\n]*)»|「([^「」\n]*)」|『([^『』\n]*)』"
    r"|\"([^\"\n]*)\"|‘([^‘’\n]*)’|(?<!\w)'([^'\n]{12,})'(?!\w)"
)
_GAP = re.compile(r"\[[^\]]{0,40}\]|…|\.\.\.")
# Under headings of the prompts with these words, a line that is a quotation is the user's.
_USER_HEADINGS = ("goal", "request", "user message", "rule", "constraint", "preference")
_USER = (
    r"(?:(?<!\bto the )\b(?:user|usuari[oa]|utilisateur|utente|nutzer|benutzer|anwender"
    r"|пользовател\w*)\b|用户|用戶|ユーザー|사용자)"
)
# The author of a quotation precedes it in its sentence ("the user said"), unless the quotation is a
# name ("committed by the user as"). Or the author follows it: "(user [12])", ", the user said". But
# "User:" introduces the next quotation.
_USER_BEFORE = re.compile(
    rf"{_USER}(?:[^.;!?。！？]|[.;!?](?!\s)){{0,60}}(?<!\bas )(?<!\bals )\Z", re.IGNORECASE
)
_USER_AFTER = re.compile(
    rf"[^\w.;!?。！？]{{0,9}}(?:\w{{1,4}} )?{_USER}(?!\s*[:：])", re.IGNORECASE
)
# A claim that the user agreed, and the words in the same sentence with which it is none.
_APPROVAL = re.compile(
    rf"{_USER}\W+(?:\w+\W+){{0,2}}?(?:approved|agreed|consented|authori[sz]ed|permitted|signed off"
    r"|gave (?:\w+ ){0,2}(?:consent|permission|approval)|zugestimmt|genehmigt|erlaubt|freigegeben"
    r"|approuvé|autorisé|aprobó|autorizó|aprovou|autorizou|ha approvato|ha autorizzato|одобрил"
    rf"|разрешил)|{_USER}(?:已经?|が|は|가|는)?\s*(?:批准|同意|承認|許可|승인|동의)",
    re.IGNORECASE,
)
_NO_APPROVAL = re.compile(
    r"\b(?:not|never|no|until|unless|if|once|whether|before|without|await\w*|wait\w*|ask\w*|must|should"
    r"|nicht|nie|falls|wenn|sobald|bevor|pas|jamais|avant|sin|si|cuando|antes|não|non|prima|не|если)\b"
    r"|n['’]t\b|未|没|沒|如果|いない|れば|않|면",
    re.IGNORECASE,
)
# Words with which users agree.
_CONSENT = re.compile(
    r"\b(?:yes|yep|yeah|ok|okay|sure|agreed?|approved?|confirm(?:ed)?|go ahead|do it|proceed|lgtm"
    r"|sounds good|looks good|fine|allow(?:ed)?|permit(?:ted)?|ja|gerne|einverstanden|genehmigt|oui"
    r"|d['’ ]accord|sí|vale|claro|sim|sì|va bene|да|хорошо|ладно|согласен|evet|tak|نعم|हाँ)\b"
    r"|好|可以|同意|行吧|はい|お願い|了解|いいよ|네|좋아|그래",
    re.IGNORECASE,
)
# Compared as a space. A quotation can contain a line break in its escaped form.
_SEPARATOR = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_PUNCTUATION = re.compile(r"(?:\\[nrt]|[\W_])+")
_NOT_THE_USERS = "(not the user's words)"

_COMMON_WORDS = {
    "English": "the and is to of that it was with for not you this are be in on",
    "German": "der die und ist nicht das ich den mit für auf ein zu von wir im bitte",
    "French": "le la les et est pas des une pour dans que qui sur avec je du au",
    "Spanish": "el la los y es no en que por con para una del se las lo su",
    "Portuguese": "o os e é não que em para com uma por do da as se no na",
    "Italian": "il che di è non per una con sono del della gli e da questo la",
    "Dutch": "de het een en is niet van dat ik met voor op zijn te deze in wij",
    "Polish": "nie się na jest do to że w z i jak co ale dla po są",
    "Turkish": "ve bir bu için ile de da olarak değil çok daha var ne mi",
    "Swedish": "och att det är som en på för inte med jag av till den har om",
}
_WORDS = {name: frozenset(words.split()) for name, words in _COMMON_WORDS.items()}
_LANGUAGE_CHARS = 5_000


@dataclass(frozen=True, slots=True)
class GroundingSource:
    """What summaries are checked against.

    Attributes:
        user: All texts of the user, folded for comparison.
        anybody: All texts of all authors, folded for comparison.
        language: The language of the user. "" if it is not clear.
        has_consent: Whether the user agreed to something, in a message or to a tool that asked.
    """

    user: str
    anybody: str
    language: str
    has_consent: bool


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """A model's text after the checks.

    Attributes:
        text: The text without the model's analysis and without false quotations.
        removed: The lines that were removed, because they quote words that nobody said.
        repaired: The lines that lost quotation marks or were marked.
        unknown: File names and figures that do not occur in the conversation.
        approvals: The lines that claim an approval which the user did not give.
    """

    text: str
    removed: tuple[str, ...]
    repaired: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    approvals: tuple[str, ...] = ()


def source_of(
    messages: Messages, *, user_texts: Sequence[str] = (), other_texts: Sequence[str] = ()
) -> GroundingSource:
    """Return what summaries of `messages` are checked against.

    Args:
        messages: The summarized messages and the messages that stay after the summary.
        user_texts: Other texts that count as the user's, such as pins and instructions.
        other_texts: Other texts that names may come from, such as the system prompt.
    """
    parts = parts_of(messages)
    typed = [part.text for part in parts if part.speaker == "user"]
    answers = _answers_to_tools(messages)
    user = _folded("\n".join((*user_texts, *typed, *answers)))
    anybody = _folded("\n".join((user, *other_texts, *(part.text for part in parts))))
    has_consent = bool(answers) or any(map(_CONSENT.search, typed))
    return GroundingSource(user, anybody, _common_language(typed), has_consent)


def _answers_to_tools(messages: Messages) -> list[str]:
    """Return the user's answers to tools that ask, and the comments on refused calls."""
    messages = with_unique_call_ids(messages)
    names = index_calls(messages)
    answers: list[str] = []
    for result in (result for message in messages for result in tool_results(message)):
        comment = refusal_comment(result)
        if comment is not None:
            answers.append(comment)
        elif is_question(names.name_of(result)):
            answers.append(result_text(result))
    return answers


def draft_of(answer: str, source: GroundingSource, *, min_headings: int = 2) -> CheckedDraft:
    """Return a model's answer, cleaned and checked.

    A summary by this library's prompts has seven headings or nine. An apology or an error has none.
    If `min_headings` is 0, a text is only refused if it begins like an apology or an error.

    Raises:
        SummaryError: The answer is empty, a refusal or an error message, or no summary, or has only
            false quotations.
    """
    text = _cleaned(answer)
    if not text:
        raise SummaryError("The model returned no text")
    headings = sum(map(_is_heading, text.splitlines()))
    if headings < min_headings or (not headings and _REFUSAL.match(text)):
        raise SummaryError(f"The text is not a summary: {one_line(text)}")
    draft = _checked(text, source)
    lines = (line for line in draft.text.splitlines() if not _is_heading(line))
    if all(map(_is_empty, lines)):
        raise SummaryError("Nothing in the text occurs in the conversation")
    return draft


def _cleaned(answer: str) -> str:
    """Return the summary in `answer` without its analysis, tags and fence."""
    # A model's text arrives in pieces, which can split a surrogate pair.
    answer = answer.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    # Local models without a parser for their thoughts return them before the text.
    thoughts, tag, rest = answer.partition("</think>")
    answer = rest if tag else thoughts
    before, _, after = answer.partition("<analysis>")
    text = (before + after.partition("</analysis>")[2]).strip().removeprefix("\ufeff")
    before, tag, summary = text.partition("<summary>")
    text = summary.partition("</summary>")[0].strip() if tag else before
    fence, _, content = text.partition("\n")
    if fence.startswith("```") and " " not in fence and content.endswith("\n```"):
        text = content.removesuffix("\n```").strip()
    return escape_entries(placeholders.quoted(text))


def _is_heading(line: str) -> bool:
    """Whether `line` is a Markdown heading of level 1 to 4."""
    text = line.lstrip("#")
    return 0 < len(line) - len(text) <= 4 and text.startswith(" ") and bool(text.strip())


def _is_empty(line: str) -> bool:
    """Whether `line` has no content, or is a place in a template that was not filled."""
    text = line.strip("-* \t")
    inner = text.strip("[]<>{}")
    is_place = text[:1] in ("[", "<", "{") and text[-1:] in ("]", ">", "}")
    return _folded(line) in _EMPTY_WORDS or (is_place and not any(c in inner for c in "[]<>{}"))


def _checked(text: str, source: GroundingSource) -> CheckedDraft:
    """Return `text` without false quotations."""
    kept: list[str] = []
    removed: list[str] = []
    repaired: list[str] = []
    in_user_section = False
    for line in text.splitlines():
        if _is_heading(line):
            in_user_section = any(name in line.casefold() for name in _USER_HEADINGS)
        elif line[:1].isalpha() and line.endswith(":"):
            # The prompts ask for the project's demands below the user's rules.
            in_user_section = in_user_section and "project" not in line.casefold()
        checked = _checked_line(line, source, in_user_section=in_user_section)
        if checked is None:
            removed.append(line.strip())
            continue
        kept.append(checked)
        if checked != line:
            repaired.append(line.strip())
    approvals = tuple(line.strip() for line in kept if _is_false_approval(line, source))
    text = "\n".join(kept).strip()
    return CheckedDraft(
        text, tuple(removed), tuple(repaired), _unknown_names(text, source), approvals
    )


def _is_false_approval(line: str, source: GroundingSource) -> bool:
    """Whether `line` claims that the user agreed, although the user never did."""
    match = None if source.has_consent else _APPROVAL.search(line)
    if match is None:
        return False
    sentence = re.split(r"[.;!?。！？]\s", line[: match.start()])[-1] + match[0]
    return _NO_APPROVAL.search(sentence) is None


def _unknown_names(text: str, source: GroundingSource) -> tuple[str, ...]:
    """Return the file names and figures in `text` that do not occur in the conversation."""
    text = _SEPARATOR.sub("", _GAP.sub(" ", text))  # without numbers of messages in brackets
    names = dict.fromkeys(name for name in names_in(text) if kind_of(name) in ("path", "number"))
    return tuple(n for n in names if not _occurs_in(n.rpartition("/")[2], source.anybody))


def _checked_line(line: str, source: GroundingSource, *, in_user_section: bool) -> str | None:
    """Return `line` without wrong quotation marks. None to remove the whole line."""
    checked, copied = "", 0
    for match in _QUOTATION.finditer(line):
        lead = line[copied : match.start()]
        quotation = _checked_quotation(match, lead, source, in_user_section=in_user_section)
        if quotation is None:
            return None
        checked, copied = f"{checked}{lead}{quotation}", match.end()
    return checked + line[copied:]


def _checked_quotation(
    match: re.Match[str], lead: str, source: GroundingSource, *, in_user_section: bool
) -> str | None:
    """Return a quotation as it may stay. A quotation that occurs nowhere loses its marks.

    None if it attributes invented words to the user, or presents them as speech. `lead` is the text
    between the previous quotation and this one.
    """
    text = next(filter(None, match.groups()), "")
    # A word or two are a name. In a script without spaces, a few characters are.
    is_name = len(text.split()) < 3 and (text.isascii() or len(text) < 8)
    if is_name or _occurs_in(text, source.user):
        return match[0]
    is_first = match.start() == len(lead) and not any(map(str.isalpha, lead))
    fills_line = is_first and (in_user_section or match[1] is not None)
    is_speech = fills_line or lead.rstrip(" *_").endswith((":", "："))
    was_said = _occurs_in(text, source.anybody)
    names_user = _USER_BEFORE.search(lead) or _USER_AFTER.match(match.string, match.end())
    if not was_said:
        return None if names_user or is_speech else text
    is_claimed = names_user or (fills_line and in_user_section)
    return f"{match[0]} {_NOT_THE_USERS}" if is_claimed else match[0]


def _occurs_in(quotation: str, folded_text: str) -> bool:
    """Whether every part of `quotation` between its gaps occurs, punctuation aside."""
    return all(_folded(part) in folded_text for part in _GAP.split(quotation))


def _folded(text: str) -> str:
    """Return the letters and digits of `text` in lower case, with single spaces between words."""
    text = _SEPARATOR.sub("", html.unescape(text))
    return _PUNCTUATION.sub(" ", text.casefold()).strip()


def language_of(text: str) -> str:
    """Return the language of `text`, or its script. "" if that is not clear.

    It is recognized by the script and the commonest small words.
    """
    lines = (line for line in own_words(text).splitlines() if not _is_heading(line))
    words = (word for line in lines for word in _QUOTATION.sub(" ", line).split())
    # Paths and identifiers belong to no language.
    prose = " ".join(word for word in words if not any(sign in word[:-1] for sign in "_/\\.@<>="))
    prose = prose[:_LANGUAGE_CHARS]
    scripts = Counter(unicodedata.name(char, "?").split()[0] for char in prose if char.isalpha())
    if not scripts:
        return ""
    latin = scripts.pop("LATIN", 0)
    if scripts["HIRAGANA"] + scripts["KATAKANA"] > latin // 20:
        return "Japanese"
    script, chars = scripts.most_common(1)[0] if scripts else ("", 0)
    # A fifth is enough, because texts of all languages contain English names, and one Chinese
    # character is a word.
    if chars > latin // 5:
        return {"CJK": "Chinese", "HANGUL": "Korean"}.get(script, script.capitalize())
    found = _folded(prose).split()
    hits = Counter({name: sum(word in small for word in found) for name, small in _WORDS.items()})
    (first, most), (_, second_most) = hits.most_common(2)
    is_clear = most >= 3 and most * 8 >= len(found) and most >= 1.3 * second_most
    return first if is_clear else ""


def _common_language(texts: Iterable[str]) -> str:
    """Return the language of more than half of the texts with a clear language. "" if none is."""
    languages = Counter(language for text in texts if (language := language_of(text)))
    language, count = languages.most_common(1)[0] if languages else ("", 0)
    return language if 2 * count > languages.total() else ""
