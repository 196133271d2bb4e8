"""A server that uses all features of the protocol. Tests run it as a program."""

import argparse

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, Field

app = MCPServer("talkative", instructions="Say hello.")
PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


class Row(BaseModel):
    """One row of a table."""

    name: str
    value: int


class Table(BaseModel):
    """A table with many rows."""

    rows: list[Row]


class ColorAnswer(BaseModel):
    """The answer to an elicitation."""

    color: str = Field(description="A color.")


@app.tool(structured_output=False)
def lines(count: int) -> str:
    """Return numbered lines."""
    return "\n".join(f"line {number}: value_{number * 7}" for number in range(count))


@app.tool()
def text(count: int) -> str:
    """Return lines as text and as structured content."""
    return lines(count)


@app.tool()
def table(count: int) -> Table:
    """Return rows with an output schema."""
    return Table(rows=[Row(name=f"row {number}", value=number) for number in range(count)])


@app.tool(structured_output=False)
def picture() -> list[Image | str]:
    """Return an image and a text."""
    return [Image(data=PIXEL * 2_000, format="png"), "a picture"]


@app.tool(structured_output=False)
def fails(count: int) -> CallToolResult:
    """Return an error with many lines."""
    return CallToolResult(content=[TextContent(type="text", text=lines(count))], is_error=True)


@app.tool(structured_output=False)
async def slowly(context: Context, steps: int) -> str:
    """Report progress for each step."""
    for step in range(steps):
        await context.report_progress(step, steps, f"step {step}")
    return "done"


@app.tool(structured_output=False)
async def never() -> str:
    """Wait until the call is cancelled."""
    await anyio.sleep_forever()
    return ""


@app.tool(structured_output=False)
async def asks(context: Context) -> str:
    """Ask the user for a color."""
    answer = await context.elicit("Which color?", ColorAnswer)
    return answer.model_dump_json()


@app.resource("note://one")
def note() -> str:
    """Return a long resource, which the proxy must not change."""
    return lines(4_000)


@app.prompt()
def greet(name: str) -> str:
    """Return a prompt."""
    return f"Greet {name}."


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    port: int | None = parser.parse_args().port
    if port is None:
        app.run()
    else:
        app.run("streamable-http", port=port)
