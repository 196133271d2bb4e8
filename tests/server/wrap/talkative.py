"""A server with something of everything that the protocol has; run as a program by the tests."""

import argparse

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, Field

app = MCPServer("talkative", instructions="Say hello.")
PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


class Row(BaseModel):
    """A row of a table."""

    name: str
    value: int


class Table(BaseModel):
    """Many rows."""

    rows: list[Row]


class Wish(BaseModel):
    """What is asked of a person."""

    color: str = Field(description="A color.")


@app.tool(structured_output=False)
def lines(count: int) -> str:
    """Some lines."""
    return "\n".join(f"line {number}: value_{number * 7}" for number in range(count))


@app.tool()
def text(count: int) -> str:
    """Lines as structured content too."""
    return lines(count)


@app.tool()
def table(count: int) -> Table:
    """Rows of a schema."""
    return Table(rows=[Row(name=f"row {number}", value=number) for number in range(count)])


@app.tool(structured_output=False)
def picture() -> list[Image | str]:
    """An image beside a word."""
    return [Image(data=PIXEL * 2_000, format="png"), "a picture"]


@app.tool(structured_output=False)
def fails(count: int) -> CallToolResult:
    """An error of some length."""
    return CallToolResult(content=[TextContent(type="text", text=lines(count))], is_error=True)


@app.tool(structured_output=False)
async def slowly(context: Context, steps: int) -> str:
    """Tells its progress."""
    for step in range(steps):
        await context.report_progress(step, steps, f"step {step}")
    return "done"


@app.tool(structured_output=False)
async def never() -> str:
    """Waits until it is cancelled."""
    await anyio.sleep_forever()
    return ""


@app.tool(structured_output=False)
async def asks(context: Context) -> str:
    """Asks a person."""
    answer = await context.elicit("Which color?", Wish)
    return answer.model_dump_json()


@app.resource("note://one")
def note() -> str:
    """A long resource, which is not touched."""
    return lines(4_000)


@app.prompt()
def greet(name: str) -> str:
    """A prompt."""
    return f"Greet {name}."


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    port: int | None = parser.parse_args().port
    if port is None:
        app.run()
    else:
        app.run("streamable-http", port=port)
