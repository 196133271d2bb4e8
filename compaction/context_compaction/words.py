"""The words of a summary and of a checkpoint, whoever wrote them."""

from dataclasses import dataclass

from context_compaction.messages import JsonObject


@dataclass(frozen=True, slots=True)
class Words:
    """The texts of a summary and of a checkpoint, who wrote them, and what to know about it.

    Attributes:
        summary: The text that stands for history.
        checkpoint: The text that stands for the beginning of the running turn.
        writer: "extractive", "host", or the name of the model's provider.
        warnings: What the caller should know.
        model: What was asked of a model, for the receipt; None where none was.
        prose: What of `summary` the host or a model wrote; with mode "record", what it gave.
        memory: The summary written earlier that stands in it, for the receipt; None without one.
    """

    summary: str
    checkpoint: str
    writer: str = "extractive"
    warnings: tuple[str, ...] = ()
    model: JsonObject | None = None
    prose: str = ""
    memory: JsonObject | None = None
