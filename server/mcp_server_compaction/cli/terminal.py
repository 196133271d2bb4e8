"""What people see: text of a transcript may not act on the terminal that it is shown on.

A web page that an agent has read stands in the archive as it was; printed raw, its escape sequences
set titles, move the cursor and hide words.
"""

import re

import click

# Control characters but newline and tab, what turns the direction of writing, half surrogates.
_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff]"
)


def shown(text: str) -> str:
    """`text` with every character that would act on a terminal spelled out by its number."""
    return _ACTS.sub(lambda found: ascii(found[0])[1:-1], text)


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line for a person."""
    click.echo(shown(text), err=err)
