"""The mkdocs hook: fills what is generated into the pages, where they ask for it."""

from typing import Any

from reference import filled


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with every `<!-- generated: NAME -->` replaced."""
    return filled(markdown)
