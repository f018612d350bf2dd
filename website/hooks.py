"""Hooks of MkDocs: pages that are generated, and files beside docs/ that its pages link to."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "build" / "site-pages"
"""Where ``website/reference.py`` writes pages, which needs the service."""
VENDOR = Path(__file__).with_name("vendor")
"""The font of formulas, which `make vendor` copies."""
OUTSIDE = "repository"
"""The folder of the site for files of the repository outside docs/."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#:]*)(#[^()\s]*)?\)")
IMAGE = re.compile(r'(<img src=")([^":]+)(")')
PYTHON = {"python": "pullback", "pages": "ops"}
# The theme loads this from another host, for pages that are opened as files.
SHIM, OWN_SHIM = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker.js"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and each file of the repository that a page links to, at any distance."""
    for page in sorted(GENERATED.glob("*.md")):
        files.append(File.generated(config, f"reference/{page.name}", content=page.read_text(encoding="utf-8")))
    for name in ("extra.css", "extra.js", "iframe-worker.js"):
        files.append(File.generated(config, f"assets/{name}", abs_src_path=str(Path(__file__).with_name(name))))
    for path in sorted(VENDOR.glob("math.*")):
        files.append(File.generated(config, f"assets/{path.name}", abs_src_path=str(path)))
    for name, module in PYTHON.items():
        files.append(File.generated(config, f"reference/{name}.md", content=f"# {name.title()}\n\n::: {module}\n"))
    unread = [(ROOT / "docs" / file.src_uri) for file in files.documentation_pages() if file.generated_by is None]
    # No page links to these.
    found = {ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")}
    unread += sorted(found)
    while unread:
        linked = {path for path in targets(unread.pop()) if path.is_file() and not path.is_relative_to(ROOT / "docs")}
        unread += [path for path in linked - found if path.suffix == ".md"]
        found |= linked
    for path in sorted(found):
        uri = f"{OUTSIDE}/{path.relative_to(ROOT).as_posix()}"
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """Return a page for unknown addresses that needs no other file: it may be sent for any folder."""
    del config
    own = Path(__file__).with_name("404.html")
    return own.read_text(encoding="utf-8") if template_name == own.name else output


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to where the site has the files; a link to a folder becomes its text."""
    del config
    folder = source_of(page.file).parent

    def moved(link: re.Match[str]) -> str:
        is_image, text, target, anchor = link.groups()
        path = (folder / target).resolve()
        if not target or (path.is_file() and path.is_relative_to(ROOT / "docs") and not is_outside(page.file)):
            return link[0]
        if not path.is_file():
            return text
        return f"{is_image}[{text}]({site_path(path, page.file)}{anchor or ''})"

    if page.file.src_uri.startswith(("reference/", "tutorials/")):
        return markdown
    # MkDocs writes the addresses of images in HTML as they are, and each page as a file in the folder of its source.
    markdown = IMAGE.sub(lambda image: f"{image[1]}{site_path(folder / image[2], page.file)}{image[3]}", markdown)
    return LINK.sub(moved, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Make a page load nothing from other hosts, and name its dialog."""
    del config
    output = output.replace(SHIM, posixpath.relpath(OWN_SHIM, posixpath.dirname(page.file.dest_uri)))
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def site_path(path: Path, page: File) -> str:
    """Return the address of a file of the repository, relative to a page."""
    inside = path.is_relative_to(ROOT / "docs")
    uri = path.relative_to(ROOT / "docs" if inside else ROOT).as_posix()
    return posixpath.relpath(uri if inside else f"{OUTSIDE}/{uri}", posixpath.dirname(page.src_uri))


def targets(page: Path) -> list[Path]:
    """Return the paths in the links of a page."""
    text = page.read_text(encoding="utf-8")
    linked = [target for _, _, target, _ in LINK.findall(text)] + [target for _, target, _ in IMAGE.findall(text)]
    return [(page.parent / target).resolve() for target in linked]


def is_outside(file: File) -> bool:
    """Return whether a file of the site is one of the repository outside docs/."""
    return file.src_uri.startswith(f"{OUTSIDE}/")


def source_of(file: File) -> Path:
    """Return the path in the repository."""
    return ROOT / (file.src_uri.removeprefix(f"{OUTSIDE}/") if is_outside(file) else f"docs/{file.src_uri}")
