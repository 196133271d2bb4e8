"""A program's own model, which writes the same summary whatever it is asked."""

from dataclasses import dataclass

from context_compaction import ModelAnswer, ModelPrompt, ModelUsage, TellChars

# Long enough, and with enough headings, to be accepted from a model.
TEXT = "\n".join((
    "## Goal",
    "Read every part that was named, and say what is wrong with it.",
    "## State",
    *(
        f"- In step {n} the agent read the next part, and found nothing to change."
        for n in range(9)
    ),
    "## Next step",
    "Go back to the parser.",
))


@dataclass
class Author:
    """A model that answers every request with `text`."""

    text: str
    writer: str = "author"
    model: str = "author-1"
    window_tokens: int = 200_000
    timeout_seconds: float = 60.0

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        assert prompt.user
        await tell(len(self.text))
        return ModelAnswer(self.text, ModelUsage(requests=1))
