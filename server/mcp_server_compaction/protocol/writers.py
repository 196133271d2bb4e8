"""Choice of the summary writer, from the configuration, the call and the client.

The API of a provider is used only if a flag or variable of this server, or the call, names it.
"""

from typing import TYPE_CHECKING

from context_compaction import SettingsError, SummarizerName

from mcp_server_compaction.config import KEY_VARIABLE, SUMMARIZER_VARIABLE, Config, WriterName

if TYPE_CHECKING:
    from context_compaction import AnthropicModel, SummaryModel

    from mcp_server_compaction.protocol.sampling import SamplingModel


def effective_writer(requested: WriterName, config: Config) -> WriterName:
    """Return the writer that the call names, or else the writer of the configuration."""
    return config.summaries.writer if requested == "auto" else requested


def library_writer(writer: WriterName) -> SummarizerName:
    """Return the library's name of the writer. A model is passed separately, as "auto"."""
    return writer if writer == "extractive" or writer == "host" else "auto"


def anthropic_model(config: Config) -> "AnthropicModel | None":
    """Return the model behind Anthropic's API. None without a key."""
    summaries = config.summaries
    if summaries.api_key is None:
        return None
    from context_compaction import AnthropicModel

    options = {"model": summaries.model, "base_url": summaries.url}
    named = {name: value for name, value in options.items() if value is not None}
    return AnthropicModel(summaries.api_key, timeout_seconds=summaries.timeout_seconds, **named)


def model_for(
    writer: WriterName, config: Config, sampling: "SamplingModel | None"
) -> "SummaryModel | None":
    """Return the model that writes the summary. None for extracts and for the host's own text.

    Args:
        writer: The writer that the call or the configuration names.
        config: Configuration of the process.
        sampling: Model of the client, if the client offers it.

    Raises:
        SettingsError: The named writer is not available.
    """
    if writer == "anthropic":
        if (model := anthropic_model(config)) is not None:
            return model
        raise SettingsError(
            f"The summary writer 'anthropic' needs a key. Set {KEY_VARIABLE} where the server is "
            "started, or use summarizer='auto'."
        )
    if writer == "sampling" and sampling is None:
        raise SettingsError(
            "The summary writer 'sampling' needs a client that offers its model, and this client "
            "does not. Use summarizer='auto'."
        )
    # A key in the environment alone must not send a conversation to a provider.
    return sampling if writer in ("sampling", "auto") else None


def writer_lines(config: Config) -> list[str]:
    """Return one line for each writer, for `doctor`: whether it is available."""
    model = anthropic_model(config)
    if model is None:
        anthropic = f"anthropic: not available, {KEY_VARIABLE} is not set"
    else:
        anthropic = (
            f"anthropic: available if a call or option names it; {model.model} at "
            f"{model.base_url}, timeout {model.timeout_seconds:g} seconds (not tested)"
        )
    default: str = config.summaries.writer
    if default == "auto":
        default = "auto: the client's model if the client offers one, otherwise extractive"
    return [
        "extractive: always available (no model needed)",
        "host: available; the caller's model writes, see summarizer='host'",
        anthropic,
        "sampling: available if the client offers its model; no client is connected here",
        f"Default: {default} (change it with {SUMMARIZER_VARIABLE})",
    ]
