"""Secrets in text: found by a kept detector's rules, counted, and replaced where that is wanted.

The rules are those of detect-secrets, with the few providers and forms that it lacks. It is loaded
by the first text that is looked at. Every rule has words of which one must occur. Rules of our own
are linear in any text; those of the library see one line at a time, long ones in pieces.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from importlib import import_module
from math import log2
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

from context_compaction.errors import InvalidMessageError, SettingsError
from context_compaction.messages.cache import RecentCache, json_key, once, text_key
from context_compaction.messages.edits import Blob
from context_compaction.messages.model import (
    Block,
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
    is_list,
    is_object,
)

if TYPE_CHECKING:
    import tiktoken

RedactionMode: TypeAlias = Literal["off", "warn", "on"]
REDACTION_MODES: tuple[RedactionMode, ...] = ("off", "warn", "on")

_AnyBlock = TypeVar("_AnyBlock", bound=Block | Part)

# A piece of a long line, and how much of it stands in the next piece too: longer than any token.
_PIECE_CHARS = 4_000
_OVERLAP_CHARS = 600
# What stands between the marks of a private key; a key of 8,192 bits has 6,400 characters.
_KEY_CHARS = 12_000
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")

# What providers sign, and would not take back changed.
_SIGNED_KEYS = frozenset({
    "encrypted_content",
    "signature",
    "textSignature",
    "thinkingSignature",
    "thoughtSignature",
    "thought_signature",
})
# What providers name: calls and results are paired by it, so that it cannot be changed either.
_ID_KEYS = frozenset({"call_id", "id", "itemId", "toolCallId", "tool_call_id", "tool_use_id"})
# Below these a tool's own names begin, which mean nothing to a provider.
_TOOL_VALUES = frozenset({"args", "arguments", "details", "input", "json", "response"})

# Beside `data` these say that it is media, or what a provider encrypted; else it is text like any
# other: an argument of a tool's call, a document that was given as text.
_DATA_KINDS = ("type", "media_type", "mimeType", "mime_type", "format")

# Detector's module and class, and words (lower case) of which one stands in each of its finds.
_DETECTORS = (
    ("artifactory", "ArtifactoryDetector", ("akc", "artifactory", "jfrog")),
    ("aws", "AWSKeyDetector", ("akia", "asia", "abia", "acca", "a3t", "aws")),
    ("azure_storage_key", "AzureStorageKeyDetector", ("accountkey=",)),
    ("basic_auth", "BasicAuthDetector", ("://",)),
    ("cloudant", "CloudantDetector", ("cloudant",)),
    ("discord", "DiscordBotTokenDetector", ("discord",)),
    ("github_token", "GitHubTokenDetector", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    (
        "gitlab_token",
        "GitLabTokenDetector",
        (
            "glpat-",
            "gldt-",
            "glft-",
            "glsoat-",
            "glrt-",
            "glcbt-",
            "glimt-",
            "glptt-",
            "glagent-",
            "gloas-",
            "gr1348941",
        ),
    ),
    ("jwt", "JwtTokenDetector", ("eyj",)),
    ("mailchimp", "MailchimpDetector", ("-us",)),
    ("npm", "NpmDetector", (":_authtoken=",)),
    ("openai", "OpenAIDetector", ("t3blbkfj",)),
    ("pypi_token", "PypiTokenDetector", ("pypi-",)),
    ("sendgrid", "SendGridDetector", ("sg.",)),
    ("slack", "SlackDetector", ("xox", "hooks.slack.com")),
    ("square_oauth", "SquareOAuthDetector", ("sq0csp-",)),
    ("stripe", "StripeDetector", ("k_live_",)),
    ("telegram_token", "TelegramBotTokenDetector", ("telegram",)),
    ("twilio", "TwilioKeyDetector", ("twilio", "account_sid")),
)

# What detect-secrets 1.5 lacks: kind, words, pattern. Forms as their providers document them.
_MORE = (
    ("anthropic key", ("sk-ant-",), r"sk-ant-[A-Za-z0-9_-]{20,200}"),
    ("openai key", ("sk-",), r"(?<![\w-])sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,200}"),
    ("github token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{22,255}"),
    ("google key", ("aiza",), r"(?<![\w-])AIza[A-Za-z0-9_-]{35}(?![\w-])"),
    ("google oauth", ("ya29.", "gocspx-"), r"(?:ya29\.[A-Za-z0-9_-]{20,400}|GOCSPX-[\w-]{20,60})"),
    ("hugging face token", ("hf_",), r"(?<!\w)hf_[A-Za-z0-9]{30,60}(?!\w)"),
    ("npm token", ("npm_",), r"(?<!\w)npm_[A-Za-z0-9]{36}(?!\w)"),
    ("slack token", ("xapp-", "xoxe"), r"(?:xapp|xoxe(?:\.xox[bp])?)-\d-[A-Za-z0-9-]{20,200}"),
    ("stripe key", ("k_test_", "whsec_"), r"(?:[rs]k_test_|whsec_)[0-9A-Za-z]{24,120}"),
    ("digitalocean token", ("_v1_",), r"(?<!\w)do[opr]_v1_[a-f0-9]{64}(?!\w)"),
    ("databricks token", ("dapi",), r"(?<!\w)dapi[a-f0-9]{32}(?!\w)"),
    ("shopify token", ("shp",), r"(?<!\w)shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}(?!\w)"),
    ("vault token", ("hvs.", "hvb."), r"(?<!\w)hv[sb]\.[A-Za-z0-9_-]{24,200}"),
    # The library's own rule leaves the signature.
    ("json web token", ("eyj",), r"(?<![\w-])eyJ[\w-]{8,4000}\.[\w-]{4,8000}(?:\.[\w-]{0,2000})?"),
    ("linear key", ("lin_api_",), r"lin_api_[A-Za-z0-9]{32,60}"),
    ("sentry token", ("sntry",), r"sntry[su]_[A-Za-z0-9+/=_-]{40,300}"),
    ("azure secret", ("8q~",), r"(?<![\w~.-])[A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{31,34}"),
    ("bearer token", ("bearer ",), r"(?i)(?<!\w)bearer +(?P<secret>[A-Za-z0-9_.~+/=-]{20,1000})"),
    ("basic auth", ("basic ",), r"(?i)(?<!\w)basic +(?P<secret>[A-Za-z0-9+/]{16,400}={0,2})(?!\w)"),
)  # fmt: skip

# A value that a name calls secret: quoted, or after a colon or equals sign.
_NAMED_WORDS = ("passw", "pwd", "secret", "token", "api", "access", "private", "auth", "credential")
_NAMED = re.compile(
    r"(?i)(?:passw(?:or)?d|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|auth[_-]?key|credentials?)\w{0,20}['\"]?\s{0,3}(?::=|=>|[:=])\s{0,3}['\"]?"
    r"(?P<secret>[^\s'\"`,;<>{}()\[\]$\\]{8,200})"
)
# Those of rules that stand in text of every kind.
_FREQUENT_WORDS = (*_NAMED_WORDS, "://")
_NO_SECRET = re.compile(
    r"(?i)example|placeholder|change.?me|your[_-]|dummy|redacted|xxxx|\*{3}|\.\.\.|^(?:true|false|null|none)"
    r"|^(?:self|this|os|process|env|config|settings|request|response|ctx|args|options)[._]|^https?:"
)
# Letters that a pattern takes for "s" and "i" where case does not matter, and `lower` does not.
_FOLDED = ("\N{LATIN SMALL LETTER LONG S}", "\N{LATIN SMALL LETTER DOTLESS I}")
_LEAST_KEY_CHARS = 20  # of a secret that a name for itself can be
_LEAST_PIECE_CHARS = 8  # as of a whole value that a name calls secret
_LEAST_ENTROPY_BITS = 3.0  # a character; words of a language have less, keys 4 and more


@dataclass(frozen=True, slots=True)
class Gates:
    """The redaction mode of one call, and the secrets of its conversation.

    Attributes:
        mode: What is done with secrets.
        secrets: Those of the conversation with their kinds, where they are replaced; looked for
            when there is something to replace them in.
    """

    mode: RedactionMode
    secrets: Callable[[], Mapping[str, str]] = field(default=dict[str, str], repr=False)

    def json(self, value: Any) -> Any:
        """A JSON value of ours as it may be shown, written or kept."""
        return without(value, self.secrets()) if self.mode == "on" and value else value


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a text contains a secret: its kind, its first character and the one after its last."""

    kind: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Rule:
    """One pattern.

    Attributes:
        kind: What it finds.
        words: In lower case; each find contains one of them.
        pattern: Its group `secret`, the first, is the secret; the whole match where it has none.
        is_bounded: Whether its time is linear in any text, so that it needs no pieces.
        begins_with_word: Whether each find begins with one of the words.
        is_secret: Whether what was found is one.
    """

    kind: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    is_bounded: bool = True
    begins_with_word: bool = False
    is_secret: Callable[[str], bool] = lambda _: True

    def find(self, text: str, offset: int, lowered: str, words: Set[str]) -> Iterator[Secret]:
        """The secrets in a text that begins at `offset` and, in lower case, contains `words`."""
        group = 1 if "secret" in self.pattern.groupindex else 0
        for found in self._matches(text, lowered, words):
            if self.is_secret(found[group]):
                yield Secret(self.kind, offset + found.start(group), offset + found.end(group))

    def _matches(self, text: str, lowered: str, words: Set[str]) -> Iterator[re.Match[str]]:
        """What `finditer` returns, which tries every character where case does not matter."""
        is_aligned = len(lowered) == len(text) and not any(letter in text for letter in _FOLDED)
        if not (self.begins_with_word and is_aligned):
            yield from self.pattern.finditer(text)
            return
        begins = words & set(self.words)
        stop = 0
        for start in sorted({at for word in begins for at in _places(word, lowered)}):
            if start >= stop and (found := self.pattern.match(text, start)):
                yield found
                stop = found.end()


def _places(word: str, text: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def find_secrets(text: str) -> tuple[Secret, ...]:
    """The secrets in `text`, in order; where two overlap, the one that begins first."""
    # Each gate looks at the same texts.
    return _found.get_or_compute(text_key(text), lambda: _find_secrets(text))


_found: RecentCache[tuple[Secret, ...]] = RecentCache()


def _find_secrets(text: str) -> tuple[Secret, ...]:
    found = sorted({*_private_keys(text), *_by_rules(text)}, key=lambda s: (s.start, -s.stop))
    apart: list[Secret] = []
    for secret in found:
        if not apart or secret.start >= apart[-1].stop:
            apart.append(secret)
    return tuple(apart)


def redact(text: str) -> str:
    """`text` with each secret replaced by a mark; the same object where there is none."""
    secrets = find_secrets(text)
    if not secrets:
        return text
    parts: list[str] = []
    at = 0
    for secret in secrets:
        parts += (text[at : secret.start], f"[redacted: {secret.kind}]")
        at = secret.stop
    return "".join((*parts, text[at:]))


def redact_json(value: Any) -> Any:
    """`value` with every string redacted, but for signatures and media; equal parts stay."""
    # A list comes again at every turn, nearly all of it as before, and clean.
    if _clean.get_or_compute(json_key(value), lambda: _mapped(value, redact) == value):
        return value
    return _mapped(value, redact)


_clean: RecentCache[bool] = RecentCache(10_000)


def redact_source(index: int, source: Any) -> Any:
    """The host's message at `index` redacted.

    Raises:
        InvalidMessageError: One of its ids holds a secret.
    """
    for found in find_secrets("\n".join(_ids_of(source))):
        raise InvalidMessageError(
            index,
            f"an id in it holds what looks like a secret ({found.kind}), and ids, by which calls "
            "and results are paired, are kept as they are",
            "Give it another id, or turn redaction off.",
        )
    return redact_json(source)


def check_no_secret(session_id: str) -> None:
    """Refuse an id with a secret: it is kept as it is, names a folder, and stands in pointers.

    Raises:
        SettingsError: It holds one.
    """
    for found in find_secrets(session_id):
        raise SettingsError(
            f"The session's id holds what looks like a secret ({found.kind}), and ids are kept as "
            "they are. Name the session otherwise, or turn redaction off."
        )


def _ids_of(value: Any) -> Iterator[str]:
    if is_object(value):
        yield from (value[key] for key in _ID_KEYS & value.keys() if isinstance(value[key], str))
        for key, item in value.items():
            if key not in _TOOL_VALUES:
                yield from _ids_of(item)
    elif is_list(value):
        for item in value:
            yield from _ids_of(item)


def redact_blob(blob: Blob) -> Blob:
    """A blob with its text redacted, under the id that its marker already has."""
    try:
        text = blob.data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return blob
    clean = redact(text)
    return blob if clean is text else replace(blob, data=clean.encode("utf-8", "surrogatepass"))


def redact_message(message: Message, clean: Callable[[Any], Any]) -> Message:
    """A message that we wrote or edited with its text made `clean`; the host's own as it is."""
    if message.source is not None and not message.edited:
        return message
    blocks = tuple(_cleaned(block, clean) for block in message.blocks)
    changed = any(new is not old for new, old in zip(blocks, message.blocks, strict=True))
    return replace(message, blocks=blocks) if changed else message


def _cleaned(block: _AnyBlock, clean: Callable[[Any], Any]) -> _AnyBlock:
    match block:
        case Text(text=text):
            said = clean(text)
            return block if said == text else replace(block, text=said, edited=True)
        case ToolResult(content=content):
            parts = tuple(_cleaned(part, clean) for part in content)
            return block if parts == content else replace(block, content=parts, edited=True)
        case ToolCall(arguments=arguments, edited=True):
            safe: Any = clean({"arguments": arguments})
            return block if safe["arguments"] == arguments else replace(block, **safe)
        case _:
            return block


def secret_values(value: Any) -> Mapping[str, str]:
    """The secrets in a JSON value with their kinds, to find them where nothing beside marks them.

    A password is known by the name before it; in a list of names it is one of them.
    """
    return _values.get_or_compute(json_key(value), lambda: _secret_values(value))


def _secret_values(value: Any) -> Mapping[str, str]:
    return {
        text[secret.start : secret.stop]: secret.kind
        for text in strings_of(value)
        for secret in find_secrets(text)
    }


_values: RecentCache[Mapping[str, str]] = RecentCache(10_000)


def without(value: Any, secrets: Mapping[str, str]) -> Any:
    """A JSON value with each of `secrets`, and what is one by itself, replaced by a mark.

    So is half of one or more that a cut left: no rule finds that.
    """
    known = [
        (secret, secret[: _half_of(secret)], secret[-_half_of(secret) :], f"[redacted: {kind}]")
        for secret, kind in sorted(secrets.items(), key=lambda item: -len(item[0]))
    ]

    def clean(text: str) -> str:
        for secret, head, tail, mark in known:
            if head in text:
                text = _without_piece(text.replace(secret, mark), secret, head, mark)
            if tail in text:
                back = text[::-1], secret[::-1], tail[::-1], mark[::-1]
                text = _without_piece(*back)[::-1]
        return redact(text)

    return _mapped(value, clean)


def _half_of(secret: str) -> int:
    return max(_LEAST_PIECE_CHARS, (len(secret) + 1) // 2)


def _without_piece(text: str, secret: str, head: str, mark: str) -> str:
    """`text` with what begins with the `head` of `secret`, as far as it goes on, replaced."""
    at = text.find(head)
    while at >= 0:
        stop = at + len(head)
        while text[stop : stop + 1] == secret[stop - at : stop - at + 1] != "":
            stop += 1
        text = text[:at] + mark + text[stop:]
        at = text.find(head, at + len(mark))
    return text


def count_secrets(texts: Iterable[str]) -> Mapping[str, int]:
    """How many secrets of each kind there are."""
    return Counter(secret.kind for text in texts for secret in find_secrets(text))


def strings_of(value: Any) -> Iterator[str]:
    """Every string of a JSON value that may hold a secret."""
    found: list[str] = []

    def keep(text: str) -> str:
        found.append(text)
        return text

    _mapped(value, keep)
    yield from found


def _mapped(value: Any, change: Callable[[str], str], *, of_tool: bool = False) -> Any:
    """`value` with its strings and keys changed; `of_tool`: it is what a tool was told or said."""
    if isinstance(value, str):
        return change(value)
    if is_object(value):
        return _mapped_object(value, change, of_tool=of_tool)
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        return [_mapped(item, change, of_tool=of_tool) for item in items]
    return value


def _mapped_object(
    value: Mapping[str, Any], change: Callable[[str], str], *, of_tool: bool
) -> Mapping[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        name = free = key if key.isidentifier() and len(key) < _LEAST_KEY_CHARS else change(key)
        while free in out:  # two names may become one
            free += "_"
        if _is_media(key, value) or (key in _SIGNED_KEYS and not of_tool):
            out[free] = item
        elif name == "name" and isinstance(item, str) and not of_tool:
            out[free] = _as_name(item, change(item))
        else:
            out[free] = _mapped(item, change, of_tool=of_tool or key in _TOOL_VALUES)
    return out


def _as_name(name: str, changed: str) -> str:
    """A changed name of a tool or a speaker in characters that providers take."""
    return name if changed == name else re.sub(r"[^\w-]+", "_", changed, flags=re.ASCII)


def _is_media(key: str, holder: Mapping[str, Any]) -> bool:
    if key != "data":
        return False
    kinds = [str(holder[name]) for name in _DATA_KINDS if name in holder]
    is_speech = "transcript" in holder  # OpenAI's answers
    return is_speech or (bool(kinds) and not any(kind.startswith("text") for kind in kinds))


def _private_keys(text: str) -> Iterator[Secret]:
    if "-----BEGIN " not in text:
        return
    ends = _KEY_ENDS.finditer(text) if "-----END " in text else iter(())
    end = next(ends, None)
    for begin in _KEY_BEGINS.finditer(text):
        while end is not None and end.start() < begin.end():
            end = next(ends, None)
        is_whole = end is not None and end.start() - begin.end() < _KEY_CHARS
        yield Secret("private key", begin.start(), end.end() if end and is_whole else begin.end())


def _by_rules(text: str) -> Iterator[Secret]:
    lowered = text.lower()
    words = _words_in(lowered)
    rules = [rule for rule in _rules() if not words.isdisjoint(rule.words)] if words else []
    others = [rule for rule in rules if not rule.is_bounded]
    for rule in rules:
        if rule.is_bounded:
            yield from rule.find(text, 0, lowered, words)
    for offset, piece in _pieces(text, lowered, others):
        small = piece.lower()
        for rule in others:
            if any(word in small for word in rule.words):
                yield from rule.find(piece, offset, small, words)


def _pieces(text: str, lowered: str, rules: Sequence[_Rule]) -> Iterator[tuple[int, str]]:
    """The lines with a word of `rules`, and their places; long ones in pieces that overlap."""
    words = [word for rule in rules for word in rule.words if word in lowered]
    lines = zip(text.split("\n"), lowered.split("\n"), strict=True) if words else ()
    at = 0
    for line, small in lines:
        if any(word in small for word in words):
            end = max(1, len(line) - _OVERLAP_CHARS)
            for start in range(0, end, _PIECE_CHARS - _OVERLAP_CHARS):
                yield at + start, line[start : start + _PIECE_CHARS]
        at += len(line) + 1


def _words_in(lowered: str) -> Set[str]:
    """The words of all rules that a text contains."""
    words = {word for word in _FREQUENT_WORDS if word in lowered}
    rare = _rare_words()
    found = {rare.decode([token]) for token in set(rare.encode_ordinary(lowered))}
    hidden = {other for word in found for other in _hidden_by(word)}
    return words | found | {word for word in hidden if word in lowered}


@cache
def _hidden_by(word: str) -> Sequence[str]:
    """The words that share characters with `word` where they overlap."""
    return [other for other in _words() if _shares(word, other)]


def _shares(word: str, other: str) -> bool:
    ends = range(1, min(len(word), len(other)) + 1)
    return (
        word in other
        or other in word
        or any(word[-n:] == other[:n] or other[-n:] == word[:n] for n in ends)
    )


@once
def _rules() -> tuple[_Rule, ...]:
    rules = [
        _Rule(kind, words, re.compile(pattern), begins_with_word="(?i)" in pattern)
        for kind, words, pattern in _MORE
    ]
    for module, name, words in _DETECTORS:
        detector: Any = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
        kind = str(detector.secret_type).lower()
        rules += [_Rule(kind, words, pattern, is_bounded=False) for pattern in detector.denylist]
    named = _Rule("named secret", _NAMED_WORDS, _NAMED, begins_with_word=True, is_secret=_is_random)
    return (*rules, named)


@once
def _words() -> tuple[str, ...]:
    """The words of all rules, each once."""
    return tuple(dict.fromkeys(word for rule in _rules() for word in rule.words))


@once
def _rare_words() -> "tiktoken.Encoding":
    """Makes a token of each rare word, and nothing of what stands between.

    A text is read once for all sixty words, in a tenth of the time that asking for each takes.
    Words that overlap hide each other.
    """
    import tiktoken

    words = [word for word in _words() if word not in _FREQUENT_WORDS]
    return tiktoken.Encoding(
        "rare words",
        pat_str="|".join(map(re.escape, words)),
        mergeable_ranks={word.encode(): rank for rank, word in enumerate(words)},
        special_tokens={},
    )


@once
def rules_version() -> str:
    """Names the rules: what one of them finds may not be found by rules of another name."""
    rules = [(rule.kind, rule.words, rule.pattern.pattern) for rule in _rules()]
    return blake2b(repr(rules).encode(), digest_size=8).hexdigest()


def _is_random(value: str) -> bool:
    """Whether a value looks made by a machine or chosen as a password, not a name in code."""
    if _NO_SECRET.search(value) or not re.search(r"\d", value) or not re.search(r"[A-Za-z]", value):
        return False
    shares = [value.count(sign) / len(value) for sign in set(value)]
    return -sum(share * log2(share) for share in shares) >= _LEAST_ENTROPY_BITS
