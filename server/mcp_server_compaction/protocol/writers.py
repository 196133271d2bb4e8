"""Which summary writer a call gets, and which there are: by configuration, call and client.

The API of a provider writes only where our own flag or variable, or the call, names it.
"""

from typing import TYPE_CHECKING

from context_compaction import SettingsError, SummarizerName

from mcp_server_compaction.config import KEY_VARIABLE, SUMMARIZER_VARIABLE, Config, WriterName

if TYPE_CHECKING:
    from context_compaction import AnthropicModel, SummaryModel

    from mcp_server_compaction.protocol.sampling import SamplingModel


def wanted_writer(asked: WriterName, config: Config) -> WriterName:
    """Who shall write: as the call asks, else as the server is configured."""
    return config.summaries.writer if asked == "auto" else asked


def library_writer(wanted: WriterName) -> SummarizerName:
    """The same in the library's words: a model that is given writes under "auto"."""
    return wanted if wanted == "extractive" or wanted == "host" else "auto"


def anthropic_model(config: Config) -> "AnthropicModel | None":
    """The model behind Anthropic's API, where there is a key."""
    told = config.summaries
    if told.api_key is None:
        return None
    from context_compaction import AnthropicModel

    named = {"model": told.model, "base_url": told.url}
    chosen = {name: value for name, value in named.items() if value is not None}
    return AnthropicModel(told.api_key, timeout_seconds=told.timeout_seconds, **chosen)


def model_for(
    wanted: WriterName, config: Config, sampling: "SamplingModel | None"
) -> "SummaryModel | None":
    """The model that writes; None where extracts, or the host's own text, are used.

    Args:
        wanted: Who shall write.
        config: The configuration of the process.
        sampling: The client's model, where it offers one.

    Raises:
        SettingsError: The writer that is named is not there.
    """
    if wanted == "anthropic":
        if (model := anthropic_model(config)) is not None:
            return model
        raise SettingsError(
            f"The summary writer 'anthropic' needs a key: set {KEY_VARIABLE} where the server is "
            "started, or leave the choice to summarizer='auto'."
        )
    if wanted == "sampling" and sampling is None:
        raise SettingsError(
            "The summary writer 'sampling' needs a client that offers its model, and this one does "
            "not. Leave the choice to summarizer='auto'."
        )
    # A key in the environment alone never sends a conversation anywhere.
    return sampling if wanted in ("sampling", "auto") else None


def writer_lines(config: Config) -> list[str]:
    """One line for each writer, for `doctor`: is it there, and if not, why not."""
    told = config.summaries
    model = anthropic_model(config)
    if model is None:
        anthropic = f"anthropic: not available, {KEY_VARIABLE} is not set"
    else:
        anthropic = (
            f"anthropic: available where it is named; {model.model} at {model.base_url}, "
            f"at most {model.timeout_seconds:g} seconds (not tried here)"
        )
    chosen: str = told.writer
    if chosen == "auto":
        chosen = "auto: the client's model where it offers one, else extractive"
    return [
        "extractive: available, always (no model needed)",
        "host: available; the caller's model writes, see summarizer='host'",
        anthropic,
        "sampling: with clients that offer their model; none is connected here",
        f"a call that names none gets {chosen} (change it with {SUMMARIZER_VARIABLE})",
    ]
