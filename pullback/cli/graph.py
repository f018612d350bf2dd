"""``pullback graph``: post the document of a graph, and draw one as text."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.cli.catalogue import print_contract, print_document
from pullback.cli.console import Table, console, print_table, styled
from pullback.cli.options import Json, Suggesting, Timeout, Url, client
from pullback.cli.pages import GRAPH
from pullback.compose import document_of, post
from pullback.errors import BadArgument

FilePath = Annotated[Path, typer.Argument(metavar="FILE", help="File with the document, in JSON.")]

GraphName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a graph, or a file with its document.")]

graph = typer.Typer(cls=Suggesting, no_args_is_help=True, help="Graphs of ops, which are ops: post one, and show one.")


@graph.command("post", short_help="Post the document of a graph.")
def post_graph(ctx: typer.Context, path: FilePath, url: Url = None, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """Post the document of a graph, and print the contract of its op, which begins with its name."""
    document = _read(path)
    with client(ctx, url, timeout) as service:
        print_contract(console(), service.op(service.send(post(document))).contract())


@graph.command(short_help="Draw a graph.")
def show(
    ctx: typer.Context, name: GraphName, as_json: Json = False, url: Url = None, timeout: Timeout = DEFAULT_TIMEOUT
) -> None:
    """Draw a graph: a line for each node, with where its inputs come from and where its outputs go.

    NAME is that of a posted or an installed graph of the service, or a file (my_ops/loss.graph.json), which is drawn
    without a service, and not checked.
    """
    if is_file := name.endswith(".json") or os.sep in name:
        document = _read(Path(name))
    else:
        with client(ctx, url, timeout) as service:
            document = service.send(document_of(name))
    try:
        if as_json:
            print_document(document)
        else:
            draw(console(), Path(name).name.removesuffix(GRAPH), document)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if not is_file:
            raise
        message = f"{name}: expected the document of a graph, which `pullback graph post {name}` can check"
        raise BadArgument(f"{message}, got {type(error).__name__}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        document = cast(object, json.loads(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise BadArgument(f"{path}: expected a file with JSON, got {error}") from None
    if not isinstance(document, dict):
        raise BadArgument(f"{path}: expected an object, got {type(document).__name__}")
    return cast("dict[str, Any]", document)


def draw(out: Console, name: str, document: Mapping[str, Any]) -> None:
    """Print a graph as text."""
    out.print(styled(": ".join(filter(None, (name, str(document.get("summary", ""))))), "bold"))
    inputs = [slot if isinstance(slot, str) else str(slot["name"]) for slot in document["inputs"]]
    table = Table(("value", "is", "goes to"))
    for slot in inputs:
        table.add(slot, "an input", ", ".join(_users(slot, document)), styles=["bold"])
    for node in document["nodes"]:
        table.add(node["name"], _call(node), ", ".join(_users(node["name"], document)), styles=["bold"])
    print_table(out, table)


def _call(node: Mapping[str, Any]) -> str:
    """Return the call of a node: ``matvec(a, x)``."""
    given: dict[str, Any] | list[Any] = node["inputs"]
    named = [*given.items()] if isinstance(given, dict) else [("", each) for each in given]
    arguments = [f"{key}={_text(value)}" if key else _text(value) for key, value in named]
    arguments += [f"{key}={_text(value)}" for key, value in node.get("attrs", {}).items()]
    return f"{node['op']}({', '.join(arguments)})"


def _text(value: Any) -> str:
    """Return a source, or the value of an attribute."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return f"the graph's {found['attr']}" if "attr" in found else json.dumps(found.get("constant"))
    return str(value)


def _users(value: str, document: Mapping[str, Any]) -> list[str]:
    """Return the nodes that use an input or a node, and the outputs that are its values."""

    def is_of(source: Any) -> bool:
        return isinstance(source, str) and source.partition(".")[0] == value

    nodes = [
        node["name"]
        for node in document["nodes"]
        if any(map(is_of, node["inputs"].values() if isinstance(node["inputs"], dict) else node["inputs"]))
    ]
    return [*nodes, *(f"output {name}" for name, source in document["outputs"].items() if is_of(source))]
