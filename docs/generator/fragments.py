"""Generated parts of the reference pages.

They are made from what a user can see: the public names of the library, the server as an MCP
client sees it, the command line, and an archive with real compactions. So they stay right when
files move. `texts.toml` has the descriptions that the code does not contain. A name without a
description, or a description without a name, is an error.
"""

import ast
import inspect
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_args, get_type_hints

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
from context_compaction.request import FixedSettings
from mcp_server_compaction import cli, config
from mcp_server_compaction.protocol.schemas import short_schema
from mcp_server_compaction.protocol.tools import TOOLS
from observed import ArchiveFields, Surface, archive_fields, budgets, server_surface
from tables import (
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

__all__ = ["FRAGMENTS", "UndescribedError", "check_names", "field_rows", "fragment", "schema_rows"]

PROGRAM = "mcp-server-compaction"
_HELP_WIDTH = 96


@cache
def texts() -> Mapping[str, Any]:
    """Return the content of `texts.toml`."""
    with (Path(__file__).parent / "texts.toml").open("rb") as file:
        return tomllib.load(file)


@cache
def fragment(name: str) -> str:
    """Return the Markdown for `<!-- generated: NAME -->`.

    Raises:
        UndescribedError: There is no such part, or it contains something without a description.
    """
    if name not in FRAGMENTS:
        raise UndescribedError(
            f"Unknown generated part {name!r}. Use one of: {', '.join(FRAGMENTS)}."
        )
    return FRAGMENTS[name]()


@cache
def _surface() -> Surface:
    return server_surface()


@cache
def _archive_fields() -> ArchiveFields:
    return archive_fields()


def _settings() -> str:
    rows = field_rows(Settings, with_unit=True)
    return table(("option", "unit or choices", "default", "what it does"), rows)


def _fixed_settings() -> str:
    return table(("name", "what it does"), list(attributes_of(FixedSettings).items()))


def _fields(kind: type) -> Callable[[], str]:
    return lambda: table(("field", "type", "meaning"), field_rows(kind, has_defaults=False))


def _recognised() -> str:
    """Describe the type of `CompactResult.recognised`, which is not a public name."""
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
    """Return the names of the public errors."""
    return [name for name in context_compaction.__all__ if name.endswith("Error")]


def _errors() -> str:
    described = texts()["errors"]
    check_names(described, error_names(), "errors")
    rows: list[list[str]] = []
    for name in described:
        error = getattr(context_compaction, name)
        fields = "".join(f" {code(field)}: {text}" for field, text in attributes_of(error).items())
        parent = error.__base__.__name__
        rows.append([code(name), code(parent), first_line(error.__doc__) + fields, described[name]])
    return table(("error", "is a", "when", "what to do"), rows)


def _receipt() -> str:
    described = texts()["receipt"]
    check_names(described, _archive_fields().receipt, "fields of receipts", may_have_more=True)
    return table(("field", "meaning"), [[code(name), text] for name, text in described.items()])


def _records() -> str:
    records, kinds, fields = _archive_fields().records, texts()["records"], texts()["record_fields"]
    check_names(kinds, records, "kinds of records")
    check_names(fields, {name for names in records.values() for name in names}, "record fields")
    rows: list[list[str]] = []
    for kind, text in kinds.items():
        own = [name for name in fields if name in records[kind] and name not in _COMMON_FIELDS]
        rows.append([code(kind), text, ", ".join(map(code, own))])
    field_table = table(("field", "meaning"), [[code(name), text] for name, text in fields.items()])
    return f"{table(('kind', 'content', 'own fields'), rows)}\n\n{field_table}"


_COMMON_FIELDS = ("n", "kind", "ts", "last")


def _environment() -> str:
    described = texts()["environment"]
    options = [str(option.envvar) for option in cli.main.params if option.envvar]
    names = [*options, config.POLICY_VARIABLE, config.MODEL_VARIABLE]
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
    undescribed = [
        option.name
        for option in command.params
        if isinstance(option, click.Option) and option.is_flag and not option.help
    ]
    if undescribed:
        raise UndescribedError(f"Flags of {' '.join(names)} have no help: {undescribed}.")
    context = click.Context(
        command,
        info_name=" ".join(names),
        max_content_width=_HELP_WIDTH,
        # Set here because click caches the first help option that a command is asked for.
        **cli.main.context_settings,
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
    effect = "only reads" if hints.read_only_hint else "writes to the archive and deletes nothing"
    schema = short_schema(TOOLS[tool.name].arguments)  # with defaults, unlike the tool list
    arguments = schema_rows(schema, described["arguments"], f"{tool.name} arguments")
    parts = [
        f"## {tool.name}",
        described["about"],
        f"Description for the model: *{tool.description}* The tool {effect}.",
        "### Arguments",
        table(("argument", "type", "default", "meaning"), arguments),
        "### Reply",
    ]
    if tool.output_schema is None:
        return "\n\n".join([*parts, described["answer"]])
    schemas: dict[str, Any] = {"": tool.output_schema, **tool.output_schema.get("$defs", {})}
    answers = described["answers"]
    check_names(answers, [name or "answer" for name in schemas], f"answers of {tool.name}")
    for name, answer_schema in schemas.items():
        rows = schema_rows(
            answer_schema,
            answers[name or "answer"],
            f"{tool.name} {name or 'answer'}",
            is_answer=True,
        )
        parts += [f"`{name}`:"] if name else []
        parts.append(table(("field", "type", "present", "meaning"), rows))
    return "\n\n".join(parts)


def _options() -> str:
    rows = schema_rows({"properties": _surface().options}, texts()["options"], "options")
    return table(("option", "type", "default", "meaning"), rows)


def _resources() -> str:
    rows = [
        [
            code(resource.uri_template),
            code(resource.mime_type),
            resource.description or _no_text(resource.name),
        ]
        for resource in _surface().templates
    ]
    return table(("resource", "type", "content"), rows)


def _prompts() -> str:
    rows = [
        [
            code(prompt.name),
            ", ".join(code(argument.name) for argument in prompt.arguments or ()),
            prompt.description or _no_text(prompt.name),
        ]
        for prompt in _surface().prompts
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
            parts.append(f"Differences from its source:\n{differences}")
    return "\n\n".join(parts)


def _policies_table() -> str:
    headings = ("", *(code(name) for name in POLICIES))
    by_policy = budgets(list(POLICIES)).values()
    rows = [
        [f"window of {window}: trigger / target", *(f"{a:,} / {b:,}" for a, b in figures)]
        for window, figures in zip(("32K", "200K", "1M"), zip(*by_policy, strict=True), strict=True)
    ]
    layers = list(dict.fromkeys(layer for policy in POLICIES.values() for layer in policy.layers))
    rows += [
        [
            f"layer {code(layer)}",
            *(
                str(policy.layers.index(layer) + 1) if layer in policy.layers else ""
                for policy in POLICIES.values()
            ),
        ]
        for layer in layers
    ]
    for name in (*attributes_of(FixedSettings), *attributes_of(Settings)):
        values = [getattr(policy.settings, name) for policy in POLICIES.values()]
        if any(value != values[0] for value in values):
            rows.append([code(name), *map(value_text, values)])
    return table(headings, rows)


def _library() -> str:
    """Describe each public name that has a docstring: functions first, then classes."""
    names = [name for name in context_compaction.__all__ if name not in _NO_DOCSTRING]
    functions = [name for name in names if name[0].islower()]
    classes = [name for name in names if name not in functions and not name.endswith("Error")]
    parts = ["## Functions", *map(_api_entry, functions), "## Classes", *map(_api_entry, classes)]
    return "\n\n".join([
        *parts,
        "## Values",
        table(("name", "meaning"), list(_NO_DOCSTRING.items())),
    ])


def _api_entry(name: str) -> str:
    """Return the heading, signature and description of a public function or class."""
    subject = getattr(context_compaction, name)
    parts = [f"### {name}", _signature(subject), _markdown_of(subject)]
    if inspect.isclass(subject):
        for method_name, method in vars(subject).items():
            if inspect.isfunction(method) and not method_name.startswith("_") and method.__doc__:
                parts += [f"#### {name}.{method_name}", _signature(method), _markdown_of(method)]
    return "\n\n".join(filter(None, parts))


def _signature(subject: Any) -> str:
    """Return the head of a function as a code block, without modules; nothing for a class."""
    if inspect.isclass(subject):
        return ""
    [node] = ast.parse(textwrap.dedent(inspect.getsource(subject))).body
    node = cast("ast.FunctionDef | ast.AsyncFunctionDef", node)
    node.body, node.decorator_list = [ast.Expr(ast.Constant(...))], []
    head = re.sub(r"\b(?:model|values)\.(?=[A-Z])", "", ast.unparse(node).partition(":\n")[0])
    return f"```text\n{head.removeprefix('async ').removeprefix('def ')}\n```"


def _markdown_of(subject: Any) -> str:
    """Turn a docstring in Google's style into Markdown with lists."""
    lines: list[str] = []
    for line in inspect.cleandoc(subject.__doc__ or "").splitlines():
        if line in _SECTIONS:
            lines.append(f"{line[:-1]}:\n")
        elif entry := re.match(r"    (\*{0,2}\w+): (.*)", line):
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        else:
            lines.append(f"  {line.strip()}" if line.startswith("     ") else line.strip())
    return "\n".join(lines)


_SECTIONS = {"Args:", "Attributes:", "Raises:", "Returns:", "Yields:"}

_NO_DOCSTRING = {
    "FORMATS": "All message formats, by [name](formats.md).",
    "LAYERS": "All layers, by name.",
    "MAX_HITS_PER_OUTPUT": "Maximum number of hits of one output on a page of search results.",
    "MESSAGE_TOKENS": "Tokens that a provider adds to the blocks of a message.",
    "PASSAGE_CHARS": "Maximum length of a hit's passage in characters.",
    "POLICIES": "All policies, by [name](policies.md).",
    "REDACTION_MODES": "All values of `RedactionMode`.",
    "SETTING_NAMES": "Names of the [settings](settings.md) that a caller may change.",
    "SNIPPET_CHARS": "Length of the text around a hit in characters.",
    "TERMINAL_CODE": "Regular expression for the control codes of terminals.",
    "WRITERS": "Functions that write session files, by host.",
    "Block": "Part of a message: text, thinking, a call, a result, a picture or a document.",
    "JsonObject": "A JSON object: `dict[str, Any]`.",
    "Messages": "A tuple of `Message`.",
    "Detail": "How much a compaction leaves: short, normal or full.",
    "Mode": "[Modes](request.md) of a request.",
    "ReportProgress": "Async function called with a fraction of the work and a text about it.",
    "ReportWork": "Function called with the units that are done, all units, and their name.",
    "RedactionMode": "Treatment of secrets: off, warn or on.",
    "Status": "[Statuses](results.md) of a result.",
    "SummarizerName": "Name of a writer of summaries.",
    "compact_json": "Function that writes a value as JSON without spaces.",
    "TellChars": "Function that a model calls with the number of characters written so far.",
}


def _map_of(package: ModuleType) -> Callable[[], str]:
    return lambda: "\n".join(_tree(Path(package.__file__ or "").parent, 0))


def _tree(folder: Path, depth: int) -> Iterator[str]:
    """Yield a list item for each file and package in `folder`, with the first docstring line."""
    indent = "    " * depth
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name)):
        if path.suffix == ".py" and path.name not in {"__init__.py", "__main__.py"}:
            yield f"{indent}- `{path.name}`: {_summary_of(path)}"
        elif (path / "__init__.py").exists():
            yield f"{indent}- **`{path.name}/`**: {_summary_of(path / '__init__.py')}"
            yield from _tree(path, depth + 1)


def _summary_of(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not docstring:
        raise UndescribedError(f"{path.name} in {path.parent.name} has no docstring.")
    return first_line(docstring)


FRAGMENTS: Mapping[str, Callable[[], str]] = {
    "settings": _settings,
    "fixed_settings": _fixed_settings,
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
