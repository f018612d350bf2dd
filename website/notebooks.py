"""A hook of MkDocs: each notebook of docs/tutorials becomes a page, with what its cells have printed and drawn."""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
PICTURE = "image/png"
LINK = re.compile(r"(\btutorials/\w+)\.ipynb\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, and its pictures."""
    for notebook in sorted(FOLDER.glob("*.ipynb")):
        name, document = notebook.stem, json.loads(notebook.read_text(encoding="utf-8"))
        pictures: list[bytes] = []
        text = "\n\n".join(parts(document, name, pictures))
        files.append(File.generated(config, f"tutorials/{name}.md", content=text))
        for number, picture in enumerate(pictures):
            files.append(File.generated(config, f"tutorials/{name}-{number}.png", content=picture))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Point links to notebooks, which GitHub shows, to their pages."""
    return LINK.sub(r"\1.md)", markdown)


def parts(document: Mapping[str, Any], name: str, pictures: list[bytes]) -> Iterator[str]:
    """Yield a notebook as Markdown, cell by cell; append its pictures to ``pictures``."""
    for cell in document["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield f"```python\n{source}\n```"
        if text := "".join("".join(output.get("text", ())) for output in cell["outputs"]).strip():
            yield f"```text\n{text}\n```"
        for output in cell["outputs"]:
            if PICTURE in output.get("data", {}):
                yield f"![{cell['metadata']['alt']}]({name}-{len(pictures)}.png)"
                pictures.append(base64.b64decode(output["data"][PICTURE]))
    yield f"This page is a notebook: [{name}.ipynb]({name}.ipynb), or as a program, [{name}.py]({name}.py)."
