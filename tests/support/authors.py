"""A program's own model, which writes the same summary whatever it is asked."""

from dataclasses import dataclass

from context_compaction import ModelAnswer, ModelPrompt, ModelUsage, TellChars


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
