"""Choice of the summary writer, from the configuration, the call and the client.

A conversation is sent to a provider or another server only if the configuration names a model. A
call can choose between the models that it names, but neither an address nor a key: the caller may
be a model that reads text by strangers, and that text could ask for another address.
"""

from typing import TYPE_CHECKING

from context_compaction import SettingsError, SummarizerName

from mcp_server_compaction.config import SUMMARIZER_VARIABLE, Config, WriterName

if TYPE_CHECKING:
    from context_compaction import SummaryModel

    from mcp_server_compaction.protocol.sampling import SamplingModel


def effective_writer(requested: WriterName, config: Config) -> WriterName:
    """Return the writer that the call names, or else the writer of the configuration."""
    return config.summaries.writer if requested == "auto" else requested


def library_writer(writer: WriterName) -> SummarizerName:
    """Return the library's name of the writer. A model is passed separately, as "auto"."""
    return writer if writer == "extractive" or writer == "host" else "auto"


def model_for(
    writer: WriterName,
    config: Config,
    sampling: "SamplingModel | None",
    name: str | None = None,
    *,
    shares_cache: bool = False,
) -> "SummaryModel | None":
    """Return the model that writes the summary. None for extracts and for the host's own text.

    Args:
        writer: The writer that the call or the configuration names.
        config: Configuration of the process.
        sampling: Model of the client, if the client offers it.
        name: The model that the call names. None for the first one of the configuration.
        shares_cache: Whether the messages are those of the caller's requests to its model.

    Raises:
        SettingsError: The named writer or model is not available.
    """
    summaries = config.summaries
    if writer == "model" or (writer == "auto" and (name or summaries.models)):
        models = [m for m in summaries.models if name in (None, m, m.partition(":")[2])]
        if not models:
            problem = "The summary writer 'model' needs a model"
            raise SettingsError(
                f"{f'Unknown summarizer_model {name!r}' if name else problem}. This server allows: "
                f"{', '.join(summaries.models) or 'none'}. Add --summarizer-model where the server "
                "is started, or use summarizer='auto'."
            )
        from context_compaction import summary_model

        return summary_model(
            models[0],
            url=summaries.url,
            key_env=summaries.key_env,
            timeout_seconds=summaries.timeout_seconds,
            context_window=summaries.context_window,
            shares_cache=shares_cache,
        )
    if writer == "sampling" and sampling is None:
        raise SettingsError(
            "The summary writer 'sampling' needs a client that offers its model, and this client "
            "does not. Use summarizer='auto'."
        )
    return sampling if writer in ("sampling", "auto") else None


def writer_lines(config: Config) -> list[str]:
    """Return one line for each writer, for `doctor`: whether it is available."""
    summaries = config.summaries
    model = "model: not available, --summarizer-model is not set"
    if summaries.models:
        model = (
            f"model: {', '.join(summaries.models)} at {summaries.url or 'the provider'}, key from "
            f"{summaries.key_env or 'nowhere'}, timeout {summaries.timeout_seconds:g} seconds "
            "(not tested)"
        )
    default: str = summaries.writer
    if default == "auto":
        default = "auto: the model, else the client's model if it offers one, else extractive"
    return [
        "extractive: always available (no model needed)",
        "host: available; the caller's model writes, see summarizer='host'",
        model,
        "sampling: available if the client offers its model; no client is connected here",
        f"Default: {default} (change it with {SUMMARIZER_VARIABLE})",
    ]
