"""Create a summary model from its name, its server's address, and the name of a key's variable.

Nothing is chosen by what happens to be in the environment: a key is read only from the variable
that is named, and it is sent only to the address that is named, or else to the provider's own.
"""

import ipaddress
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from context_compaction.errors import SettingsError

if TYPE_CHECKING:
    from context_compaction.summarizers.llm.anthropic import AnthropicModel
    from context_compaction.summarizers.llm.openai import OpenAIModel

MODEL_PREFIXES = ("anthropic", "openai", "openai-responses")
"""What can precede a model's name, with a colon: the API that the model's server speaks."""

# Names of hosts in a private network end so. A name without a dot is also of such a network.
_PRIVATE_NAMES = (".internal", ".local", ".localhost")


def summary_model(
    name: str,
    *,
    url: str | None = None,
    key_env: str | None = None,
    timeout_seconds: float = 120.0,
    context_window: int | None = None,
    shares_cache: bool = True,
) -> "AnthropicModel | OpenAIModel":
    """Return the model with this name, for the argument `model` of `compact`.

    Args:
        name: `anthropic:MODEL`, `openai:MODEL` (Chat Completions) or `openai-responses:MODEL`. With
            `url`, a name without these prefixes is a model of a server that speaks Chat
            Completions.
        url: Address of the API. None for the provider's own.
        key_env: Name of the environment variable with the key. None sends no key.
        timeout_seconds: Time limit for all requests and retries of one compaction together.
        context_window: Token limit of a request with its answer. None uses the table of models.
        shares_cache: Whether the conversation's own requests can be in this API's prompt cache.

    Raises:
        SettingsError: The name has no prefix, the address is invalid or unencrypted, the variable
            is not set, or a provider's own API gets no key.
    """
    api, model = check_summary_model(name, url=url, key_env=key_env)
    # These modules count tokens and parse conversations, so they are loaded when they are needed.
    from context_compaction.summarizers.llm.anthropic import ANTHROPIC_URL, AnthropicModel
    from context_compaction.summarizers.llm.openai import OPENAI_URL, OpenAIModel

    key = os.environ[key_env].strip() if key_env else None
    options: dict[str, Any] = {
        "model": model, "api_key": key, "timeout_seconds": timeout_seconds,
        "context_window": context_window, "shares_cache": shares_cache,
    }  # fmt: skip
    if api == "anthropic":
        return AnthropicModel(base_url=url or ANTHROPIC_URL, **options)
    options["api"] = "responses" if api == "openai-responses" else "chat"
    return OpenAIModel(base_url=url or OPENAI_URL, **options)


def check_summary_model(
    name: str, *, url: str | None, key_env: str | None, environment: Mapping[str, str] = os.environ
) -> tuple[str, str]:
    """Check the arguments of `summary_model`, and return the API and the model's own name.

    Raises:
        SettingsError: An argument is invalid.
    """
    api, _, model = name.partition(":")
    if api not in MODEL_PREFIXES or not model:
        if url is None:
            raise SettingsError(
                f"The summary model {name!r} does not name its API. Write anthropic:MODEL, "
                "openai:MODEL or openai-responses:MODEL, or name the address of a server."
            )
        api, model = "openai", name
    if url is not None:
        _check_url(url)
    if key_env is not None:
        _check_key(key_env, environment.get(key_env, ""))
    elif url is None:
        raise SettingsError(
            f"The summary model {name!r} needs a key. Name the environment variable that holds it, "
            "for example ANTHROPIC_API_KEY."
        )
    return api, model


def _check_key(variable: str, key: str) -> None:
    # The error does not contain the key, because a wrong key may still be a secret.
    if not key.strip():
        raise SettingsError(f"The variable {variable} is to hold a key, but it is not set. Set it.")
    if not key.isascii() or not key.strip().isprintable():
        raise SettingsError(f"{variable} has characters that no key contains. Set it again.")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.username or parts.password:
        raise SettingsError(
            "The address of the summary model contains a name or password. Remove it, and name the "
            "variable that holds the key."
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(
            f"Invalid address {url!r} of the summary model. Use one like https://host/v1."
        )
    if parts.scheme == "http" and not _is_private(parts.hostname):
        raise SettingsError(
            f"{url} would send the key and the conversation unencrypted. Use https, or http only "
            "inside a private network."
        )


def _is_private(host: str) -> bool:
    """Whether `host` is this machine or a host of a private network."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith(_PRIVATE_NAMES)
