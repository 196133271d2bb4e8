"""What binds: sentences of the user that state rules, preferences, decisions and corrections.

No pattern knows every phrasing. So every sentence that a user typed is ranked, and patterns of
many languages only say which go first; what looks pasted (code, logs, lists of files), asks, or
merely agrees goes last. A later sentence on the same subject with a correcting word or another
value takes the place of the earlier one, which is then left out everywhere.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from context_compaction import markers
from context_compaction.messages import Messages, Text

MAX_SENTENCE_CHARS = 400
MIN_SENTENCE_CHARS = 6
# Of one message: what is longer is pasted, and its beginning and end are read.
_MAX_MESSAGE_CHARS = 12_000
_PASTED_LINES = 12
_LONG_CHARS = 240
_STATEMENT_RANK = 0.4
_LATELY_WEIGHT = 0.1
# A sentence that stands word for word in so many messages is a frame, not speech.
_FRAME_TIMES = 3

_RULE = re.compile(
    # English
    r"\b(must(n'?t)?|never|always|do(es)? ?n[o']t|don'?t|won'?t|can'?t|cannot|can not|may not|"
    r"should(n'?t)?|shall|only|prefer\w*|avoid\w*|ensure|make sure|be sure|forbid\w*|forbidden|"
    r"prohibited|banned?|(not )?allowed|permitted|required?|requirement|mandatory|off[- ]limits|"
    r"hands off|untouched|leave \w+|stick (to|with)|no longer|any ?more|from now on|going forward|"
    r"henceforth|instead|rather|unless|except|regardless|whatever (you do|happens)|"
    r"under no circumstances|no matter|at (most|least)|no (more|less|fewer|later) than|"
    r"(max|min)(imum)?|limit(ed)?|capped?|budget|deadline|due (by|on|date)|until|by (mon|tues|wednes|thurs|fri|"
    r"satur|sun)day|by (the )?end|by noon|by midnight|before (we|you|any)|remember|keep in mind|"
    r"note that|bear in mind|important|crucial|critical|essential|strict\w*|exactly|insist|"
    r"rules?|convention|(?<!\bi )(has|have|needs?) to|supposed to|expected to|refuse|"
    r"rather than|instead of|without|stay\w*|keep|skip|drop|stop|refrain|consent|permission|"
    r"approv\w+|confirm\w*|ask me|tell me|check with|run it by|sign[- ]?off|decided|agreed|settled|"
    r"final|allerg\w+|hates?|dislikes?|"
    r"switch\w* to|call (it|me)|name it|treat|assume|"
    r"actually|scratch that|correction|change of plans?|changed my mind|on second thought|"
    r"forget (about|what|the|that)|nothing but|every (time|single)|each time|not (to be|a single))\b"
    # Romance languages
    r"|\b(nunca|jam[aá]s|siempre|deb[eo]\w*|no (uses?|toques?|hagas|cambies|debes?|quiero|puede)|"
    r"prefier\w+|evit\w+|obligatori\w+|prohibid\w+|solo|s[oó]lo|solamente|en lugar de|en vez de|"
    r"a partir de ahora|recuerda|ten en cuenta|ya no|hasta|antes de(l)?|m[aá]ximo|"
    r"jamais|toujours|doi(s|t|vent)|ne \w+ (pas|plus|jamais|rien)|n'\w+ (pas|plus|jamais|rien)|"
    r"interdit\w*|uniquement|seulement|plut[oô]t|au lieu de|d[eé]sormais|"
    r"il faut|veuillez|obligatoire|au (plus|moins)|avant (le|de)|"
    r"mai|sempre|dev[ei]\w*|non (us|toc|far|devi|voglio)\w*|preferisc\w+|invece|d'ora in poi|"
    r"vietat\w+|soltanto|entro|nao|n[aã]o \w+|nunca|sempre|deve\w*|prefiro|apenas|"
    r"em vez de|proibid\w+|obrigat[oó]ri\w+|a partir de agora)\b"
    # Germanic and Slavic languages, Turkish
    r"|\b(nie(mals)?|immer|m[uü]ss\w*|darf\w*|d[uü]rf\w+|soll\w*|nicht|kein\w*|nur|"
    r"ausschlie[sß]+lich|statt(dessen)?|lieber|bevorzug\w+|verboten|erlaubt|ab (jetzt|sofort)|"
    r"vermeide\w*|h[oö]chstens|mindestens|sp[aä]testens|bis (zum|montag|freitag)|"
    r"nooit|altijd|moet\w*|niet|geen|alleen|liever|voortaan|uiterlijk|"
    r"aldrig|alltid|m[aå]ste|inte|ikke|alltid|"
    r"nigdy|zawsze|musi\w*|nie wolno|tylko|zamiast|prosz[eę]|"
    r"asla|her zaman|sadece|yerine|l[uü]tfen|gerek\w*|olmamal[iı]|yapma)\b"
    r"|никогда|всегда|нельзя|нужно|надо|должн|обязательно|только|не (трогай|используй|меняй|надо|"
    r"делай|пиши)|вместо|запрещ|предпочита|теперь|впредь|не позднее|максимум|ніколи|"
    r"завжди|треба"
    # Chinese, Japanese, Korean, Arabic, Hindi
    r"|不要|不得|不能|不可|别(再|用|动|碰|改)|必须|必需|务必|一定|只(能|用|要|准|许)|禁止|严禁|"
    r"记住|注意|切勿|从现在|以后|今后|改为|改用|改成|换成|而不是|优先|尽量|避免|最多|至少|之前|截止|"
    r"總是|必須|請|記住|總|勿"
    r"|ください|下さい|ないで|しないこと|必ず|絶対|禁止|べき|なければ|ねばなら|てはいけ|ではなく|"
    r"代わりに|今後|以内|までに|だけ|のみ|避けて|してほしい|にして"
    r"|하지 ?마|마세요|마십시오|말고|항상|반드시|절대|금지|대신|해야|앞으로|까지|만 사용"
    r"|لا ت|يجب|دائم|أبد|فقط|ممنوع|بدلا|من فضلك|الرجاء|लेकिन|हमेशा|कभी|ज़रूर|केवल|मत|चाहिए|कृपया",
    re.IGNORECASE,
)
# The surest signs of a rule, in the languages above.
_STRONG = re.compile(
    r"\b(never|always|must(n'?t)?|avoid|forbid\w*|prohibited|strictly|under no circumstances|"
    r"whatever you do|from now on|no longer|only .{1,40} (may|can|should)|prefer|i'?d rather|"
    r"every time|at all times|remember|"
    r"nunca|siempre|jam[aá]s|prefiero|jamais|toujours|pr[eé]f[eè]re|il faut|mai|sempre|preferisco|"
    r"niemals|nie|immer|darf|d[uü]rfen|keine?n?|ausschlie[sß]lich|nooit|altijd|aldri[gk]?|alltid|"
    r"nigdy|zawsze|asla|никогда|всегда|нельзя|должн\w+|обязательно|запрещ\w+)\b"
    r"|\A(do not|don'?t|no \w{4,}|не \w+(й|йте|и|ите)|n'\w+ (pas|jamais)|no \w+e?s|non \w+re)\b"
    r"|, not \w+|不要|不得|必须|必須|务必|禁止|严禁|绝不|切勿|绝对|绝|ないで|必ず|絶対|てはいけ|"
    r"절대|반드시|마세요|항상|لا ت|يجب|हमेशा",
    re.IGNORECASE,
)
# Politeness goes with rules and with every other wish: alone it weighs less.
_WISH = re.compile(
    r"\b(please|let'?s|(i|we)( would|'d)? (rather|prefer|like|want|need))\b"
    r"|por favor|bitte|per favore|s'il (te|vous) pla[iî]t|пожалуйста|请|お願い|주세요",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    r"\b(actually|instead|no longer|any ?more|scratch that|correction|change of plans?|"
    r"changed my mind|on second thoughts?|forget (about|what|the|that)|rather than|not .{2,40} but|"
    r"switch\w* (to|over|from)|replac\w+|from now on|going forward|was wrong|i was mistaken|"
    r"turns out|revised?|update:|updated?|new (plan|value|deadline|limit|date|one)|"
    r"moved (to|up|back)|overrid\w+|supersed\w+|disregard|ignore what|now it'?s|is now|"
    r"en lugar de|en vez de|ya no|mejor|cambi\w+|plut[oô]t|finalement|au lieu de|ne .{2,30} plus|"
    r"doch|stattdessen|statt|nicht mehr|ge[aä]ndert|invece|non pi[uù]|em vez de|mudei)\b"
    r"|вместо|теперь|больше не|передумал|на самом деле|改为|改成|改用|换成|而不是|不再|更正|其实|"
    r"ではなく|代わりに|やっぱり|変更|訂正|대신|말고|변경",
    re.IGNORECASE,
)
_AGREEMENT = re.compile(
    r"(yes|yep|yeah|ok(ay)?|sure|thanks?|thank you|great|perfect|no,|nope|hi|hello|go ahead|"
    r"continue|proceed|done|sounds good|that'?s (right|all|correct))[\s,.!]",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_EAST_ASIAN_PAIR = re.compile(r"(?=([\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]{2}))")
_VALUE = re.compile(r"[\w./:@#-]*\d[\w./:@#-]*|`[^`]+`|\"[^\"]+\"|[\w-]+[./_][\w./-]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])")
# Said of oneself these state no rule: "I don't have the number at hand", "I can't find it".
_ABOUT_ONESELF = re.compile(
    r"\bi (really |just |also |actually )?(do(n'?t| not)|can'?t|cannot|could ?n'?t|did ?n'?t|"
    r"must have|only|am not|'?m not)\b|\b(is|are|was|were|did|does|doesn'?t|didn'?t) (it|that|this|"
    r"there)\b|\bi (need|have|had) to\b",
    re.IGNORECASE,
)
_IMPERATIVE = re.compile(
    r"(use|make|keep|write|put|store|stick|ask|tell|wait|stop|leave|treat|check|test|follow|respect|"
    r"return|limit|stay|work|speak|answer|reply|respond|format|sign|log|hold|save|target|pin|mark|"
    r"no|all|any|every|everything|nothing|nobody|none|each|both|neither|when|if|whenever|once|after|"
    r"for|in|on|our|we|my|i am|i'm|the|it|they|you|your|usa|utilise[rz]?|verwende\w*|benutze\w*|"
    r"schreib\w*|используй\w*|пиши\w*)\b",
    re.IGNORECASE,
)
_STOP_WORDS = frozenset(
    "the and for you that this with have from are was not but can all any has had will would "
    "should could must please just use using make sure our your them they its it's don't never "
    "always only instead actually now when then than into about also there here want need let "
    "that's i'd i'm we're what which been being does did per via".split()
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Binding:
    """A sentence of the user.

    Attributes:
        order: Its place among the user's sentences.
        text: The sentence, on one line.
        rank: How surely it binds: higher goes first.
    """

    order: int
    text: str
    rank: float


@dataclass(frozen=True, slots=True)
class Bindings:
    """What binds, best first, and what no longer does."""

    standing: tuple[Binding, ...]
    superseded: frozenset[str]


def bindings_of(messages: Messages, *, later: Messages = ()) -> Bindings:
    """The user's sentences in `messages`, ranked; those of `later` only correct them."""
    found: dict[str, Binding] = {}
    times: dict[str, int] = {}
    order = 0
    for text in _typed(messages):
        for sentence, pasted in _sentences(text):
            found.pop(sentence, None)  # said again: it counts as said last
            times[sentence] = times.get(sentence, 0) + 1
            rank = _rank(sentence, pasted=pasted) - (times[sentence] >= _FRAME_TIMES)
            found[sentence] = Binding(order, sentence, rank)
            order += 1
    said = tuple(found.values())
    corrections = tuple(
        Binding(order, sentence, _rank(sentence, pasted=pasted))
        for text in _typed(later)
        for sentence, pasted in _sentences(text)
        if sentence not in found
    )
    superseded = _superseded((*said, *corrections))
    standing = [_later_first(each, order) for each in said if each.text not in superseded]
    standing.sort(key=lambda binding: (-binding.rank, -binding.order))
    return Bindings(tuple(standing), superseded)


def _typed(messages: Messages) -> Iterator[str]:
    for message in messages:
        if markers.is_request(message):
            yield from (block.text for block in message.blocks if isinstance(block, Text))


def _later_first(binding: Binding, last: int) -> Binding:
    """`binding` ranked a little higher the later it was said."""
    lately = _LATELY_WEIGHT * binding.order / max(1, last)
    return Binding(binding.order, binding.text, binding.rank + lately)


def sentences_of(text: str) -> list[str]:
    """The sentences of a user's text, each on one line, as this module compares them."""
    return [sentence for sentence, _ in _sentences(text)]


def _sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Sentences, and whether each looks pasted rather than typed."""
    if len(text) > _MAX_MESSAGE_CHARS:
        half = _MAX_MESSAGE_CHARS // 2
        text = text[:half] + "\n" + text[-half:]
    fenced = False
    lines = text.splitlines()
    is_long = len(lines) > _PASTED_LINES
    last_part = max((at for at, line in enumerate(lines) if not line.strip()), default=-1)
    for at, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        # Who pastes a log says what to do with it before or after.
        amid = is_long and 1 < at <= last_part
        stripped = line.strip().lstrip("-*>•").strip()
        indented = line[:1] in (" ", "\t") and is_long
        for part in _SENTENCE_END.split(stripped):
            sentence = part.strip()
            if len(sentence) < (2 if not sentence.isascii() else MIN_SENTENCE_CHARS):
                continue
            pasted = fenced or indented or amid or _looks_pasted(sentence)
            yield sentence[:MAX_SENTENCE_CHARS], pasted


def _looks_pasted(sentence: str) -> bool:
    if not sentence.isascii():
        return False
    letters = sum(char.isalpha() or char == " " for char in sentence)
    return letters < len(sentence) * 0.72 or " " not in sentence


def _rank(sentence: str, *, pasted: bool) -> float:
    rules = len({match[0].lower() for match in _RULE.finditer(sentence)})
    rank = min(rules, 3) * 0.75
    if _STRONG.search(sentence):
        rank += 1.0
    if rules and _ABOUT_ONESELF.search(sentence):
        rank -= 1.0
    if _WISH.search(sentence):
        rank += 0.5
    if _IMPERATIVE.match(sentence):
        rank += 0.25
    if rules and _CORRECTION.search(sentence):
        rank += 0.5
    if pasted:
        rank -= 1.0
    if sentence.endswith(("?", "？")):
        rank -= 1.0
    if _AGREEMENT.match(sentence):
        rank -= 0.5 if rules else 1.0
    # A statement of ordinary length is worth its room even where no pattern knows it.
    chars = len(sentence) + 2 * sum(char > "\u2e80" for char in sentence)
    return rank + (0.5 if 20 <= chars <= _LONG_CHARS else 0.0)


def _superseded(bindings: tuple[Binding, ...]) -> frozenset[str]:
    """Sentences that a later one on the same subject corrects.

    Candidates are found by shared words, so the cost stays near linear.
    """
    words = [_subject(binding.text) for binding in bindings]
    by_word: dict[str, list[int]] = {}
    gone: set[str] = set()
    for at, binding in enumerate(bindings):
        corrects = _CORRECTION.search(binding.text) is not None
        near: dict[int, int] = {}
        for word in words[at]:
            for other in by_word.get(word, ())[-40:]:
                near[other] = near.get(other, 0) + 1
        for other, shared in near.items():
            older = bindings[other]
            if _replaces(binding, older, shared, words[at], words[other], corrects=corrects):
                gone.add(older.text)
        for word in words[at]:
            by_word.setdefault(word, []).append(at)
    return frozenset(gone)


def _replaces(
    newer: Binding,
    older: Binding,
    shared: int,
    newer_words: frozenset[str],
    older_words: frozenset[str],
    *,
    corrects: bool,
) -> bool:
    if newer.rank < 1 or older.rank < _STATEMENT_RANK or shared < 2:
        return False
    smaller = min(len(newer_words), len(older_words))
    share = shared / max(1, smaller)
    newer_values, older_values = set(_VALUE.findall(newer.text)), set(_VALUE.findall(older.text))
    other_value = bool(newer_values and older_values and newer_values != older_values)
    if corrects:
        return share >= (0.34 if other_value else 0.5)
    return other_value and share >= 0.75


def _subject(sentence: str) -> frozenset[str]:
    found = (match[0].lower() for match in _WORD.finditer(sentence[:MAX_SENTENCE_CHARS]))
    words = {_stem(word) for word in found if word not in _STOP_WORDS and word < "\u2e80"}
    return frozenset(words.union(_EAST_ASIAN_PAIR.findall(sentence)))


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 4 and word.endswith("s") else word
