"""Write the generated parts of the reference pages, or check that they are current.

    python docs/generator/generate.py           writes them
    python docs/generator/generate.py --check   exits with 1 if a page is out of date

A part of a page begins with a mark and ends with `<!-- end -->`. `<!-- generated: NAME -->` marks a
table made from the code. `<!-- file: PATH -->` marks the text of a file, and
`<!-- file: PATH:SECTION -->` the lines between `[start:SECTION]` and `[end:SECTION]` in that file.
The text of each part is committed, so that the pages can be read without a build.
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from fragments import fragment

DOCS = Path(__file__).parents[1]
_PART = re.compile(r"(<!-- (generated|file): (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(markdown: str) -> str:
    """Return a page with its generated parts brought up to date.

    Raises:
        UndescribedError: A mark names an unknown part, or a part contains something without a
            description.
    """
    return _PART.sub(_filled_part, markdown)


def _filled_part(part: re.Match[str]) -> str:
    text = fragment(part[3]) if part[2] == "generated" else _file_block(part[3])
    return f"{part[1]}\n{text}\n\n{part[4]}"


def _file_block(place: str) -> str:
    """Return a file of the repository, or a section of it, as a code block."""
    path, _, section = place.partition(":")
    text = (DOCS.parent / path).read_text(encoding="utf-8")
    if section:
        after_start = text.partition(f"[start:{section}]\n")[2]
        text = after_start.partition(f"[end:{section}]")[0].rpartition("\n")[0]
    language = {".py": "py", ".json": "json", ".ts": "ts"}[Path(path).suffix]
    return f"```{language}\n{textwrap.dedent(text).strip()}\n```"


def outdated_pages() -> Iterator[tuple[Path, str]]:
    """Yield each page whose generated parts are out of date, with its new text."""
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (new_text := filled(text)) != text:
            yield page, new_text


def main() -> int:
    """Write or check the pages; return the exit code."""
    pages = list(outdated_pages())
    if "--check" in sys.argv[1:]:
        for page, _ in pages:
            print(f"{page.relative_to(DOCS.parent)} is out of date. Run {sys.argv[0]}.")  # noqa: T201
        return 1 if pages else 0
    for page, text in pages:
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
