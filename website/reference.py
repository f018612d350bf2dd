"""Write pages of the site from the service: ``python -m website.reference FOLDER``."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import typer

from app.main import create_app
from ops import discover
from pullback.cli.commands import app as commands
from website.op_pages import op_reference

Schema = Mapping[str, Any]


def routes(document: Schema) -> Iterator[str]:
    """Yield the lines of a page with every route and every model of an OpenAPI document."""
    yield "# Routes and models\n\nMade from `/openapi.json`. [The HTTP API](../http-api.md) explains them.\n"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"## {method.upper()} `{path}`\n\n{operation.get('summary', '')}\n"
            yield operation.get("description", "")
            if parameters := operation.get("parameters"):
                yield "\n| parameter | in | meaning |\n| --- | --- | --- |"
                whole = [resolved(document, each) for each in parameters]
                yield from (f"| `{each['name']}` | {each['in']} | {cell(each)} |" for each in whole)
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                yield f"\nBody, as `{media}`: {kind(content.get('schema', {}))}\n"
            yield "\n| status | answer |\n| --- | --- |"
            for status, reference in operation["responses"].items():
                answer = resolved(document, reference)
                kinds = dict.fromkeys(kind(each.get("schema", {})) for each in answer.get("content", {}).values())
                yield f"| {status} | {cell(answer)} {', '.join(filter(None, kinds))} |"
            yield ""
    for name, schema in document["components"]["schemas"].items():
        yield f"## {name}\n\n{schema.get('description', '')}\n"
        if fields := schema.get("properties"):
            required = schema.get("required", ())
            yield "| field | type | meaning |\n| --- | --- | --- |"
            for field, each in fields.items():
                yield f"| `{field}`{'' if field in required else ' (optional)'} | {kind(each)} | {cell(each)} |"
            yield ""


def resolved(document: Schema, component: Schema) -> Schema:
    """Return a component in place of a reference to it."""
    if not (reference := component.get("$ref")):
        return component
    _, _, section, name = reference.split("/")
    return document["components"][section][name]


def kind(schema: Schema) -> str:
    """Return the type of a value, with links to models."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema or "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if choices := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return " or ".join(dict.fromkeys(filter(None, map(kind, choices))))
    if schema.get("type") == "array":
        return f"array of {kind(schema.get('items', {})) or 'values'}"
    return str(schema.get("type", ""))


def cell(schema: Schema) -> str:
    """Return a description as the cell of a table."""
    return " ".join(schema.get("description", "").split()).replace("|", "\\|")


def help_of(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[str]:
    """Yield the help of a command and of those in it."""
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100)
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    for below in command.list_commands(context) if isinstance(command, typer.core.TyperGroup) else ():
        if (found := command.get_command(context, below)) and not found.hidden:
            yield from help_of(found, below, context)


def main(folder: Path) -> None:
    """Write the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "http.md").write_text("\n".join(routes(create_app().openapi())), encoding="utf-8")
    (folder / "ops.md").write_text("\n".join(op_reference(discover(()))), encoding="utf-8")
    lines = help_of(typer.main.get_command(commands), "pullback")
    (folder / "commands.md").write_text("# Commands\n\n" + "\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
