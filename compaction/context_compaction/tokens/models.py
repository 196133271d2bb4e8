"""Profiles of models: their tokenizer compared with o200k_base, and their limits.

A profile is found by the longest prefix of the model's name. The caller's `context_window` and
`max_output_tokens` take precedence. An unknown model gets cautious values.

The factors were measured with Anthropic's count_tokens on more than a thousand texts in 22
programming languages, prose, logs and tool output: o200k_base times 1.22 for Claude 3 to 4.6, and
times 1.50 for the newer tokenizer of Claude 4.7 and later. The mean error of a block is 5 to 9 %.
In a coding session of 820 messages with Claude Sonnet 4.5, the reported usage grew by 127,170
tokens and the estimate by 127,482. The number of characters divided by 4 is only half to two thirds
of the true tokens.
"""

import re
from dataclasses import dataclass, replace

from context_compaction.tokens.media import ImageRule, PatchRule, TileRule


@dataclass(frozen=True, slots=True)
class Profile:
    """One family of models.

    Attributes:
        name: Name of the family, as it appears in the name of a counter.
        factor: Tokens of this family per token of o200k_base, in ASCII text.
        margin: Factor from an estimate to its upper estimate. It covers the error of a whole
            session, in which the errors of single blocks average out.
        image: Rule for the tokens of images.
        accented_factor: Tokens per token of o200k_base in Latin text with accents (German, French,
            Spanish).
        weighs_scripts: Whether o200k_base counts too few tokens for other scripts in this family.
        context_window: Token limit of a request, input and output together.
        max_output_tokens: Token limit of one response.
    """

    name: str
    factor: float
    margin: float
    image: ImageRule
    accented_factor: float
    weighs_scripts: bool
    context_window: int = 200_000
    max_output_tokens: int = 16_384


# Images. Claude: squares of 28 pixels, at most 1568 (old tier) or 4784 (4.7 and later). OpenAI's
# small models: squares of 32 pixels, at most 1536, times 1.62 to 2.46. Gemini: 258 a tile of 768.
_CLAUDE_OLD_IMAGE = PatchRule(28, max_edge_px=1568, max_patches=1568)
_CLAUDE_IMAGE = PatchRule(28, max_edge_px=2576, max_patches=4784)
_OPENAI_SMALL_IMAGE = PatchRule(32, max_edge_px=2048, max_patches=1536, patch_tokens=2.46)
_GEMINI_IMAGE = PatchRule(768, max_edge_px=3072, max_patches=16, patch_tokens=258)

# Margins. OpenAI's tokenizer is o200k_base itself; 3 % cover the tokens added to messages. For
# Claude, estimates of mixed sessions were 4 % too low to 1 % too high, and those of one language up
# to 25 % too low; 10 % cover a session with several kinds of text. Gemini was not measured.
_CLAUDE = Profile("claude", 1.50, 1.10, _CLAUDE_IMAGE, accented_factor=2.0, weighs_scripts=True)
_CLAUDE_OLD = Profile(
    "claude-3", 1.22, 1.10, _CLAUDE_OLD_IMAGE, accented_factor=1.45, weighs_scripts=True
)
_OPENAI = Profile("openai", 1.0, 1.03, TileRule(), accented_factor=1.0, weighs_scripts=False)
_OPENAI_SMALL = replace(_OPENAI, image=_OPENAI_SMALL_IMAGE)
# gpt-4 and gpt-3.5 use cl100k_base: nearly equal in English and code, far worse elsewhere.
_OPENAI_OLD = Profile("openai-cl100k", 1.05, 1.05, TileRule(), 1.20, weighs_scripts=True)
# Gemini's vocabulary is larger and multilingual, but every digit is a token.
_GEMINI = Profile("gemini", 1.30, 1.10, _GEMINI_IMAGE, accented_factor=1.30, weighs_scripts=False)
_UNKNOWN = replace(_CLAUDE, name="unknown")


def _limits(profile: Profile, context_window: int, max_output_tokens: int) -> Profile:
    return replace(profile, context_window=context_window, max_output_tokens=max_output_tokens)


# Profiles by prefix of the model's name, with dashes in place of dots. A prefix consists of whole
# parts. The limits are from the providers' documentation of November 2026. If the input has a lower
# limit than the window (gpt-5: 272,000 of 400,000), the lower limit is used.
_MODELS: dict[str, Profile] = {
    "claude": _limits(_CLAUDE, 200_000, 64_000),
    "claude-fable-5": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-haiku-5": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-mythos-5": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-opus-5": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-sonnet-5": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-opus-4-7": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-opus-4-8": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-opus-4-6": _limits(_CLAUDE_OLD, 1_000_000, 128_000),
    "claude-sonnet-4-6": _limits(_CLAUDE_OLD, 1_000_000, 128_000),
    "claude-opus-4-5": _limits(_CLAUDE_OLD, 200_000, 64_000),
    "claude-opus-4": _limits(_CLAUDE_OLD, 200_000, 32_000),
    "claude-sonnet-4": _limits(_CLAUDE_OLD, 200_000, 64_000),
    "claude-haiku-4": _limits(_CLAUDE_OLD, 200_000, 64_000),
    "claude-3-7": _limits(_CLAUDE_OLD, 200_000, 64_000),
    "claude-3-5": _limits(_CLAUDE_OLD, 200_000, 8_192),
    "claude-3": _limits(_CLAUDE_OLD, 200_000, 4_096),
    "gpt": _limits(_OPENAI, 128_000, 16_384),
    "gpt-6": _limits(_OPENAI, 272_000, 128_000),
    "gpt-5": _limits(_OPENAI, 272_000, 128_000),
    "gpt-5-mini": _limits(_OPENAI_SMALL, 272_000, 128_000),
    "gpt-5-nano": _limits(_OPENAI_SMALL, 272_000, 128_000),
    "gpt-5-4": _limits(_OPENAI, 922_000, 128_000),
    "gpt-5-5": _limits(_OPENAI, 922_000, 128_000),
    "gpt-4-1": _limits(_OPENAI, 1_047_576, 32_768),
    "gpt-4-1-mini": _limits(_OPENAI_SMALL, 1_047_576, 32_768),
    "gpt-4-1-nano": _limits(_OPENAI_SMALL, 1_047_576, 32_768),
    "gpt-4o": _limits(_OPENAI, 128_000, 16_384),
    "chatgpt-4o": _limits(_OPENAI, 128_000, 16_384),
    "gpt-4-turbo": _limits(_OPENAI_OLD, 128_000, 4_096),
    "gpt-4": _limits(_OPENAI_OLD, 8_192, 4_096),
    "gpt-3-5-turbo": _limits(_OPENAI_OLD, 16_385, 4_096),
    "gpt-oss": _limits(_OPENAI, 131_072, 32_768),
    "o1": _limits(_OPENAI, 200_000, 100_000),
    "o3": _limits(_OPENAI, 200_000, 100_000),
    "o4-mini": _limits(_OPENAI_SMALL, 200_000, 100_000),
    "gemini": _limits(_GEMINI, 1_048_576, 65_536),
    "gemini-2-0": _limits(_GEMINI, 1_048_576, 8_192),
    "gemini-1-5": _limits(_GEMINI, 1_048_576, 8_192),
}

_MAX_PARTS = max(name.count("-") + 1 for name in _MODELS)


def profile_for(model: str | None) -> Profile:
    """Return the profile of a model by its name; a cautious profile for None or an unknown name.

    A provider before the name is ignored: "anthropic/claude-sonnet-4.5",
    "us.anthropic.claude-sonnet-4-5-v1:0" and "claude-sonnet-4-5" are the same model.
    """
    if model is None:
        return _UNKNOWN
    name = model.lower().rpartition("/")[2].rpartition("anthropic.")[2]
    parts = re.split(r"[-.@:_]", name, maxsplit=_MAX_PARTS)
    for length in range(min(len(parts), _MAX_PARTS), 0, -1):
        profile = _MODELS.get("-".join(parts[:length]))
        if profile is not None:
            return profile
    return _UNKNOWN
