"""Secrets in text: found, counted, and replaced where that is wanted.

Rules know tokens in their providers' forms, and values that a name marks. Every rule has words, one
of which is in each of its finds: a line is searched only by the rules whose words it contains. All
patterns are linear in any text.
"""

import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from math import log2
from typing import Any, Literal, TypeAlias, TypeVar, cast

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

_Words: TypeAlias = tuple[str, ...]

# A value that a name calls secret: after a colon or equals sign; in an element or an attribute
# (Maven, .NET); as an argument behind a name (PHP's define); in .netrc; and curl's user. In the
# arguments of a call, which are JSON in a string, there are backslashes before the quotes.
_NAMES = ("passw", "pwd", "secret", "token", "api")
_QUOTE = r"\\{0,3}['\"]"
_NAME = r"(?:passw(?:or)?d|pwd|secret|token|api[_-]?key)"
_VALUE = r"(?P<secret>[^\s'\"`<>{}$\\]{8,200})"

# Kind, words in lower case, and pattern. Forms of tokens are as their providers document them. The
# group `secret` is the secret, or the whole match where there is none. A pattern that ignores case
# does so in ASCII alone, as its words do.
_FORMS: tuple[tuple[str, _Words, str], ...] = (
    ("anthropic key", ("sk-ant-",), r"sk-ant-[A-Za-z0-9_-]{20,200}"),
    ("openai key", ("sk-",), r"(?<![\w-])sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,200}"),
    ("openai key", ("t3blbkfj",), r"(?<![\w-])sk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}"),
    ("github token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9_]{36,255}"),
    ("github token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{22,255}"),
    (
        "gitlab token",
        ("glpat-", "gldt-", "glft-", "glsoat-", "glrt-", "glcbt-", "glimt-", "glptt-", "glagent-",
         "gloas-"),
        r"(?<!\w)gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas)-[A-Za-z0-9_-]{20,1024}",
    ),
    ("google key", ("aiza",), r"(?<![\w-])AIza[A-Za-z0-9_-]{35}(?![\w-])"),
    ("google oauth", ("ya29.", "gocspx-"), r"(?:ya29\.[A-Za-z0-9_-]{20,400}|GOCSPX-[\w-]{20,60})"),
    (
        "aws access key", ("akia", "asia", "abia", "acca", "a3t"),
        r"(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}",
    ),
    (
        "aws access key", ("aws",),
        rf"(?ia)aws.{{0,20}}?(?:key|pw|pass|token).{{0,20}}?{_QUOTE}(?P<secret>[0-9a-z/+]{{40}})['\"\\]",
    ),
    ("azure storage key", ("accountkey=",), r"AccountKey=[a-zA-Z0-9+/=]{88}"),
    ("azure secret", ("8q~",), r"(?<![\w~.-])[A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{31,34}"),
    ("artifactory token", ("akc",), r"(?<!\w)AKC[a-zA-Z0-9]{10,200}(?!\w)"),
    ("discord token", ("discord",), r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27}"),
    ("telegram token", ("telegram",), r"\d{8,10}:[0-9A-Za-z_-]{35}"),
    ("twilio key", ("twilio", "account_sid"), r"(?:AC|SK)[a-z0-9]{32}"),
    ("mailchimp key", ("-us",), r"(?<!\w)[0-9a-z]{32}-us[0-9]{1,2}"),
    ("sendgrid key", ("sg.",), r"SG\.[a-zA-Z0-9_-]{22}\.[a-zA-Z0-9_-]{43}"),
    ("square secret", ("sq0csp-",), r"sq0csp-[0-9A-Za-z_-]{43}"),
    ("hugging face token", ("hf_",), r"(?<!\w)hf_[A-Za-z0-9]{30,60}(?!\w)"),
    ("npm token", ("npm_",), r"(?<!\w)npm_[A-Za-z0-9]{36}(?!\w)"),
    ("npm token", (":_authtoken=",), r":_authToken=\s{0,3}(?P<secret>[A-Fa-f0-9-]{36})"),
    ("pypi token", ("pypi-",), r"pypi-AgE[A-Za-z0-9_-]{70,400}"),
    ("slack token", ("xox",), r"(?ia)xox[abposr]-(?:\d{1,20}-){1,6}[a-z0-9]{1,200}"),
    ("slack token", ("xapp-", "xoxe"), r"(?:xapp|xoxe(?:\.xox[bp])?)-\d-[A-Za-z0-9-]{20,200}"),
    (
        "slack token", ("hooks.slack.com",),
        r"https://hooks\.slack\.com/services/T\w{1,40}/B\w{1,40}/\w{1,80}",
    ),
    ("stripe key", ("k_test_", "k_live_", "whsec_"), r"(?:[rs]k_(?:test|live)_|whsec_)\w{24,120}"),
    ("digitalocean token", ("_v1_",), r"(?<!\w)do[opr]_v1_[a-f0-9]{64}(?!\w)"),
    ("databricks token", ("dapi",), r"(?<!\w)dapi[a-f0-9]{32}(?!\w)"),
    ("vault token", ("hvs.", "hvb."), r"(?<!\w)hv[sb]\.[A-Za-z0-9_-]{24,200}"),
    ("json web token", ("eyj",), r"(?<![\w-])eyJ[\w-]{8,4000}\.[\w-]{4,8000}(?:\.[\w-]{0,2000})?"),
    ("bearer token", ("bearer ",), r"(?ia)(?<!\w)bearer +(?P<secret>[A-Za-z0-9_.~+/=-]{20,1000})"),
    # A user and a password in base64: in a header, and in Docker's file.
    ("basic auth", ("basic ",), r"(?ia)(?<!\w)basic +(?P<secret>[A-Za-z0-9+/]{8,400}={0,2})(?!\w)"),
    (
        "basic auth", ("auth",),
        r"(?ia)auth\\{0,3}\"\s{0,3}:\s{0,3}\\{0,3}\"(?P<secret>[A-Za-z0-9+/]{8,400}={0,2})",
    ),
    (
        "url password", ("://",),
        r"://[^\s/?#:@'\"<>]{0,100}"
        r":(?P<secret>[^\s/?#@'\"`<>{}$%][^\s/@'\"`<>{}]{2,200})@",
    ),
    (
        "named secret",
        (*_NAMES, "access", "private", "auth", "credential"),
        rf"(?ia)(?:{_NAME}|(?:access|private|auth)[_-]?key|credentials?)\w{{0,20}}(?:{_QUOTE})?"
        rf"\s{{0,3}}(?::=|=>|[:=])\s{{0,3}}(?:{_QUOTE})?"
        r"(?P<secret>[^\s'\"`,;<>{}()\[\]$\\]{8,200})",
    ),
    ("named secret", ("</",), rf"(?ia)<[\w.:-]{{0,20}}{_NAME}>{_VALUE}</"),
    (
        "named secret", ("key=", "name="),
        rf"(?ia)(?:key|name)={_QUOTE}[\w.:-]{{0,40}}{_NAME}[\w.-]{{0,20}}{_QUOTE}\s{{1,9}}"
        rf"value={_QUOTE}{_VALUE}",
    ),
    ("named secret", _NAMES, rf"(?ia){_NAME}{_QUOTE}\s{{0,3}},\s{{0,3}}{_QUOTE}{_VALUE}"),
    ("named secret", ("login ",), rf"(?ia)login \S{{1,80}}\s{{1,9}}password\s{{1,9}}{_VALUE}"),
    (
        "named secret", ("curl ",),
        rf"(?ia)curl [^\n]{{0,300}}?(?:-u|--user)[ =]{{0,3}}(?:{_QUOTE})?[\w.@+-]{{1,80}}:{_VALUE}",
    ),
)  # fmt: skip
# A key of 8,192 bits has 6,400 characters. Without its end the mark alone is found.
_KEY_MARK = r"[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_PRIVATE_KEY = re.compile(
    rf"-----BEGIN {_KEY_MARK}(?:(?:(?!-----).){{0,12000}}-----END {_KEY_MARK})?", re.DOTALL
)
_STANDS_FOR_ANOTHER = re.compile(
    r"(?i)example|placeholder|change.?me|your[_-]|dummy|redacted|xxxx|\*{3}|\.\.\."
    r"|^(?:true|false|null|none)|^https?:"
    r"|^(?:self|this|os|process|env|config|settings|request|response|ctx|args|options)[._]"
)


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a text contains a secret: its kind, its first character and the one after its last."""

    kind: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Rule:
    """One pattern of `_FORMS`; `is_secret` decides about what it finds."""

    kind: str
    words: _Words
    pattern: re.Pattern[str]
    is_secret: Callable[[str], bool] | None

    def find(self, line: str, offset: int) -> Iterator[Secret]:
        """The secrets in a line that begins at `offset`."""
        group = 1 if self.pattern.groups else 0
        for found in self.pattern.finditer(line):
            if self.is_secret is None or self.is_secret(found[group]):
                yield Secret(self.kind, offset + found.start(group), offset + found.end(group))


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


def _private_keys(text: str) -> Iterator[Secret]:
    for found in _PRIVATE_KEY.finditer(text) if "PRIVATE KEY" in text else ():
        yield Secret("private key", found.start(), found.end())


def _by_rules(text: str) -> Iterator[Secret]:
    lowered = text.lower()
    words = {word for word in _words() if word in lowered}
    rules = [rule for rule in _rules() if not words.isdisjoint(rule.words)] if words else []
    offset = 0
    for line, small in zip(text.split("\n"), lowered.split("\n"), strict=True) if rules else ():
        found = {word for word in words if word in small}
        for rule in rules if found else ():
            if not found.isdisjoint(rule.words):
                yield from rule.find(line, offset)
        offset += len(line) + 1


@once
def _rules() -> tuple[_Rule, ...]:
    return tuple(
        _Rule(kind, words, re.compile(pattern), _CHECKS.get(kind))
        for kind, words, pattern in _FORMS
    )


@once
def _words() -> tuple[str, ...]:
    """The words of all rules, each once."""
    return tuple(dict.fromkeys(word for rule in _rules() for word in rule.words))


def rules_version() -> str:
    """Names the rules: what one of them finds may not be found by rules of another name."""
    return blake2b(repr(_FORMS).encode(), digest_size=8).hexdigest()


def _is_given(value: str) -> bool:
    """Whether a value is none that stands for another."""
    return not _STANDS_FOR_ANOTHER.search(value)


def _is_user_and_password(value: str) -> bool:
    try:
        user, _, password = b64decode(value, validate=True).decode().partition(":")
    except ValueError:
        return False
    return bool(user and password) and f"{user}{password}".isprintable()


def _is_random(value: str) -> bool:
    """Whether a value looks made by a machine or chosen as a password, not a name in code."""
    has_digit, has_letter = any("0" <= c <= "9" for c in value), any(map(str.isalpha, value))
    if not (has_digit and has_letter and _is_given(value)):
        return False
    shares = [value.count(sign) / len(value) for sign in set(value)]
    # Bits of a character; words of a language have less, keys 4 and more.
    return -sum(share * log2(share) for share in shares) >= 3.0


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "named secret": _is_random,
    "url password": _is_given,
    "basic auth": _is_user_and_password,
}


RedactionMode: TypeAlias = Literal["off", "warn", "on"]
REDACTION_MODES: tuple[RedactionMode, ...] = ("off", "warn", "on")

_AnyBlock = TypeVar("_AnyBlock", bound=Block | Part)

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


def gates_of(mode: RedactionMode, messages: Sequence[Message]) -> Gates:
    """The gates of a call with this list."""
    if mode != "on":
        return Gates(mode)

    @cache
    def secrets() -> Mapping[str, str]:
        return dict(pair for m in messages for pair in secret_values(m.source).items())

    return Gates(mode, secrets)


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

    So is either half of one, which a cut may have left: no rule finds that.
    """
    marks: dict[str, str] = {}
    for secret, kind in sorted(secrets.items(), key=lambda item: -len(item[0])):
        half = max(8, (len(secret) + 1) // 2)
        marks |= dict.fromkeys((secret, secret[:half], secret[-half:]), f"[redacted: {kind}]")

    def clean(text: str) -> str:
        for piece, mark in marks.items():
            text = text.replace(piece, mark)
        return redact(text)

    return _mapped(value, clean)


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
        # Longer ones may be secrets.
        name = free = key if key.isidentifier() and len(key) < 20 else change(key)
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
