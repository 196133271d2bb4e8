"""Conversations that grow turn by turn, in Anthropic's format."""

from tests.support.json_types import Json
from tests.support.small import answered, assistant, lines, user


def turn(number: int, line_count: int = 120) -> list[Json]:
    """Return a request, a file read and an answer that contain `number`."""
    file = f"f{number}.py"
    return [
        user(f"Task {number}: look at {file}."),
        *answered(f"r{number}", "Read", lines(f"n{number}", line_count), file_path=file),
        assistant(f"I have seen {file}."),
    ]


def session(turns: int, line_count: int = 120) -> list[Json]:
    return [message for number in range(turns) for message in turn(number, line_count)]
