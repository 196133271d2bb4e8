"""What is generated in the pages, made from the code when the documentation is built.

Only what a user can touch is asked: the public names of the library, the server as an MCP client
sees it, the command line, and an archive that compactions have written. So it holds after any move
of a file, and cannot tell of what is not there. What the code says briefly, because a model pays
for it, or does not say at all, stands in `texts.toml`; a thing without a word, or a word without a
thing, is an error of the build.
"""

import ast
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import click
import context_compaction
import mcp_server_compaction
from context_compaction import (
    FORMATS,
    POLICIES,
    Boundary,
    CompactionStats,
    CompactRequest,
    CompactResult,
    Edit,
    LayerReport,
    Piece,
    Prepared,
    Settings,
    Splice,
    SummaryPrompt,
    TokenReport,
)
from context_compaction.settings import Strategy
from describe import (
    UndescribedError,
    attributes_of,
    check_names,
    code,
    field_rows,
    first_line,
    schema_rows,
    table,
    value_text,
)
from mcp_server_compaction import cli, config
from mcp_server_compaction.protocol.arguments import short_schema
from mcp_server_compaction.protocol.tools import TOOLS
from observed import Surface, Written, budgets, server_surface, written

__all__ = ["FRAGMENTS", "UndescribedError", "check_names", "filled", "fragment", "schema_rows"]

PROGRAM = "mcp-server-compaction"
_MARK = re.compile(r"<!-- generated: (\w+) -->")
# Where the content of a page is, for readers of the file itself.
_UNBUILT = re.compile(r"<!-- unbuilt -->.*?<!-- /unbuilt -->\n*", re.DOTALL)
_HELP_WIDTH = 96


@cache
def texts() -> Mapping[str, Any]:
    """What the code does not say."""
    with (Path(__file__).parent / "texts.toml").open("rb") as file:
        return tomllib.load(file)


def filled(markdown: str) -> str:
    """A page with what is generated in the place of each mark.

    Raises:
        UndescribedError: A mark names nothing, or what it names cannot be described.
    """
    return _MARK.sub(lambda found: fragment(found[1]), _UNBUILT.sub("", markdown))


@cache
def fragment(name: str) -> str:
    """What stands in the place of `<!-- generated: NAME -->`."""
    if name not in FRAGMENTS:
        raise UndescribedError(f"Nothing generated is called {name!r}: {', '.join(FRAGMENTS)}.")
    return FRAGMENTS[name]()


@cache
def _surface() -> Surface:
    return server_surface()


@cache
def _written() -> Written:
    return written()


def _settings() -> str:
    rows = field_rows(Settings, with_unit=True)
    return table(("option", "unit or choices", "default", "what it does"), rows)


def _strategy() -> str:
    return table(("name", "what it does"), list(attributes_of(Strategy).items()))


def _fields(kind: type) -> Callable[[], str]:
    return lambda: table(("field", "type", "meaning"), field_rows(kind, has_defaults=False))


def _recognised() -> str:
    """The fields of a type that only an answer leads to."""
    kind, _ = get_args(get_type_hints(CompactResult)["recognised"])
    return _fields(kind)()


def _request() -> str:
    return table(("field", "type", "default", "meaning"), field_rows(CompactRequest))


def _statuses() -> str:
    described = texts()["statuses"]
    check_names(described, get_args(get_type_hints(CompactResult)["status"]), "statuses")
    rows = [[code(name), text["means"], text["do"]] for name, text in described.items()]
    return table(("status", "what happened", "what to do"), rows)


def _modes() -> str:
    described = texts()["modes"]
    check_names(described, get_args(get_type_hints(CompactRequest)["mode"]), "modes")
    return table(("mode", "what it does"), [[code(name), text] for name, text in described.items()])


def _formats() -> str:
    described = texts()["formats"]
    check_names(described, FORMATS, "formats")
    rows = [[code(name), text] for name, text in described.items()]
    return table(("format", "whose messages"), rows)


def error_names() -> list[str]:
    """The public errors."""
    return [name for name in context_compaction.__all__ if name.endswith("Error")]


def _errors() -> str:
    described = texts()["errors"]
    check_names(described, error_names(), "errors")
    rows: list[list[str]] = []
    for name in described:
        error = getattr(context_compaction, name)
        fields = "".join(f" {code(at)}: {text}" for at, text in attributes_of(error).items())
        parent = error.__base__.__name__
        rows.append([code(name), code(parent), first_line(error.__doc__) + fields, described[name]])
    return table(("error", "is a", "when", "what to do"), rows)


def _receipt() -> str:
    described = texts()["receipt"]
    check_names(described, _written().receipt, "fields of receipts", may_have_more=True)
    return table(("field", "meaning"), [[code(name), text] for name, text in described.items()])


def _records() -> str:
    found, kinds, heads = _written().records, texts()["records"], texts()["record_fields"]
    check_names(kinds, found, "kinds of records")
    check_names(heads, {name for names in found.values() for name in names}, "fields of records")
    rows: list[list[str]] = []
    for kind, text in kinds.items():
        own = [name for name in heads if name in found[kind] and name not in _EVERY_RECORD]
        rows.append([code(kind), text, ", ".join(map(code, own))])
    fields = table(("field", "meaning"), [[code(name), text] for name, text in heads.items()])
    return f"{table(('kind', 'what it keeps', 'fields of its own'), rows)}\n\n{fields}"


_EVERY_RECORD = ("crc", "n", "kind", "ts", "last", "body")


def _environment() -> str:
    described = texts()["environment"]
    names = [value for name, value in vars(config).items() if name.endswith("_VARIABLE")]
    check_names(described, names, "environment variables")
    rows = [
        [code(name), code(text["flag"]) if "flag" in text else "", text["default"], text["does"]]
        for name, text in described.items()
    ]
    return table(("variable", "flag", "default", "what it sets"), rows)


def _command_line() -> str:
    return "\n\n".join(_help(command, names) for names, command in _commands(cli.main))


def _commands(main: click.Group) -> Iterator[tuple[list[str], click.Command]]:
    yield [PROGRAM], main
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        if command is not None:
            yield [PROGRAM, name], command


def _help(command: click.Command, names: list[str]) -> str:
    if not command.help:
        raise UndescribedError(f"The command {' '.join(names)} has no docstring.")
    silent = [
        option.name
        for option in command.params
        if isinstance(option, click.Option) and option.is_flag and not option.help
    ]
    if silent:
        raise UndescribedError(f"Flags of {' '.join(names)} have no help: {silent}.")
    context = click.Context(
        command,
        info_name=" ".join(names),
        max_content_width=_HELP_WIDTH,
        # A command keeps the first help option that it was asked for.
        help_option_names=cli.main.context_settings["help_option_names"],
    )
    context.terminal_width = _HELP_WIDTH
    return f"## {names[-1]}\n\n```text\n{command.get_help(context)}\n```"


def _tools() -> str:
    described = texts()["tools"]
    surface = _surface()
    check_names(described, [tool.name for tool in surface.tools], "tools")
    return "\n\n".join(_tool(tool, described[tool.name]) for tool in surface.tools)


def _tool(tool: Any, described: Mapping[str, Any]) -> str:
    hints = tool.annotations
    does = "reads only" if hints.read_only_hint else "writes to the archive, and deletes nothing"
    taken = short_schema(TOOLS[tool.name].arguments)  # with defaults, which models do without
    arguments = schema_rows(taken, described["arguments"], f"{tool.name} arguments")
    parts = [
        f"## {tool.name}",
        described["about"],
        f"What the model is told: *{tool.description}* It {does}.",
        "### Arguments",
        table(("argument", "type", "default", "meaning"), arguments),
        "### Answer",
    ]
    if tool.output_schema is None:
        return "\n\n".join([*parts, described["answer"]])
    schemas: dict[str, Any] = {"": tool.output_schema, **tool.output_schema.get("$defs", {})}
    answers = described["answers"]
    check_names(answers, [name or "answer" for name in schemas], f"answers of {tool.name}")
    for name, schema in schemas.items():
        rows = schema_rows(
            schema, answers[name or "answer"], f"{tool.name} {name or 'answer'}", is_answer=True
        )
        parts += [f"`{name}`:"] if name else []
        parts.append(table(("field", "type", "present", "meaning"), rows))
    return "\n\n".join(parts)


def _options() -> str:
    rows = schema_rows({"properties": _surface().options}, texts()["options"], "options")
    return table(("option", "type", "default", "meaning"), rows)


def _resources() -> str:
    rows = [
        [code(one.uri_template), code(one.mime_type), one.description or _no_text(one.name)]
        for one in _surface().templates
    ]
    return table(("resource", "type", "what it holds"), rows)


def _prompts() -> str:
    rows = [
        [
            code(one.name),
            ", ".join(code(argument.name) for argument in one.arguments or ()),
            one.description or _no_text(one.name),
        ]
        for one in _surface().prompts
    ]
    return table(("prompt", "arguments", "what it does"), rows)


def _no_text(name: str) -> str:
    raise UndescribedError(f"{name} has no description.")


def _policies_about() -> str:
    parts: list[str] = []
    for policy in POLICIES.values():
        differences = "".join(f"\n- {text}" for text in policy.differences)
        parts.append(f"## {policy.name}\n\n{policy.description}\n\nSource: {policy.source}.")
        if differences:
            parts.append(f"Where it differs from its source:\n{differences}")
    return "\n\n".join(parts)


def _policies_table() -> str:
    headings = ("", *(code(name) for name in POLICIES))
    found = budgets(list(POLICIES))
    rows = [
        [f"window of {window}: trigger / target", *(f"{a:,} / {b:,}" for a, b in figures)]
        for window, figures in zip(
            ("32K", "200K", "1M"), zip(*found.values(), strict=True), strict=True
        )
    ]
    layers = list(dict.fromkeys(layer for one in POLICIES.values() for layer in one.layers))
    rows += [
        [
            f"layer {code(layer)}",
            *(
                str(one.layers.index(layer) + 1) if layer in one.layers else ""
                for one in POLICIES.values()
            ),
        ]
        for layer in layers
    ]
    for name in (*attributes_of(Strategy), *attributes_of(Settings)):
        values = [getattr(policy.settings, name) for policy in POLICIES.values()]
        if any(value != values[0] for value in values):
            rows.append([code(name), *map(value_text, values)])
    return table(headings, rows)


def _library() -> str:
    """A heading and a docstring for each public name, functions first."""
    names = [name for name in context_compaction.__all__ if name not in _NO_DOCSTRING]
    functions = [name for name in names if name[0].islower()]
    classes = [name for name in names if name not in functions and not name.endswith("Error")]
    parts: list[str] = []
    for heading, group in (("Functions", functions), ("Classes", classes)):
        parts += [f"## {heading}", *(f"::: context_compaction.{name}" for name in group)]
    parts += ["## Values", table(("name", "what it is"), list(_NO_DOCSTRING.items()))]
    return "\n\n".join(parts)


_NO_DOCSTRING = {
    "DEFAULT_TENANT": "The tenant of an archive that belongs to one user.",
    "FORMATS": "Every format of messages, by [name](formats.md).",
    "MAX_HITS_PER_OUTPUT": "The most hits of one output on a page of search results.",
    "PASSAGE_CHARS": "The longest passage of a hit, in characters.",
    "POLICIES": "Every policy, by [name](policies.md).",
    "REDACTION_MODES": "Every value of `RedactionMode`.",
    "SETTING_NAMES": "The names of the [settings](settings.md) that a caller may change.",
    "SNIPPET_CHARS": "The text around a hit, in characters.",
    "STRATEGY_NAMES": "The names of the settings that belong to a policy.",
    "TERMINAL_CODE": "A pattern for the control codes of terminals.",
    "WRITERS": "The functions that write session files, by host.",
    "Block": "A part of a message: text, thinking, a call, a result, a picture, a document.",
    "JsonObject": "A JSON object: `dict[str, Any]`.",
    "Messages": "A tuple of `Message`.",
    "Mode": "The [modes](request.md) of a request.",
    "RedactionMode": "What happens to secrets: off, warn or on.",
    "Status": "The [statuses](results.md) of a result.",
    "SummarizerName": "Who writes a summary.",
    "TellChars": "A function that a model calls with the number of characters written so far.",
}


def _map_of(package: ModuleType) -> Callable[[], str]:
    return lambda: "\n".join(_tree(Path(package.__file__ or "").parent, 0))


def _tree(folder: Path, depth: int) -> Iterator[str]:
    """A list item for each folder and file below `folder`, with what its docstring begins with."""
    indent = "    " * depth
    for path in sorted(folder.iterdir(), key=lambda one: (one.is_dir(), one.name)):
        if path.suffix == ".py" and path.name not in {"__init__.py", "__main__.py"}:
            yield f"{indent}- `{path.name}`: {_said_of(path)}"
        elif (path / "__init__.py").exists():
            yield f"{indent}- **`{path.name}/`**: {_said_of(path / '__init__.py')}"
            yield from _tree(path, depth + 1)


def _said_of(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not docstring:
        raise UndescribedError(f"{path.name} in {path.parent.name} has no docstring.")
    return first_line(docstring)


FRAGMENTS: Mapping[str, Callable[[], str]] = {
    "settings": _settings,
    "strategy": _strategy,
    "request": _request,
    "result": _fields(CompactResult),
    "tokens": _fields(TokenReport),
    "layer_report": _fields(LayerReport),
    "edit": _fields(Edit),
    "boundary": _fields(Boundary),
    "piece": _fields(Piece),
    "summary_prompt": _fields(SummaryPrompt),
    "prepared": _fields(Prepared),
    "recognised": _recognised,
    "splice": _fields(Splice),
    "stats": _fields(CompactionStats),
    "statuses": _statuses,
    "modes": _modes,
    "formats": _formats,
    "errors": _errors,
    "receipt": _receipt,
    "records": _records,
    "environment": _environment,
    "command_line": _command_line,
    "tools": _tools,
    "options": _options,
    "resources": _resources,
    "prompts": _prompts,
    "policies_about": _policies_about,
    "policies_table": _policies_table,
    "library": _library,
    "library_map": _map_of(context_compaction),
    "server_map": _map_of(mcp_server_compaction),
}
