"""``pullback new`` writes the page of an op that passes its checks; ``pullback skill`` is for language models."""

import re
import shlex
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from pullback.errors import BadArgument

TEMPLATES = Path(__file__).parent / "templates"
# That of ``ops``, without the import of TensorFlow.
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def new_page(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the op and of its file.")],
    *,
    native: Annotated[bool, typer.Option("--native", help="With kernels in C++, in a second file.")] = False,
    surrogate: Annotated[bool, typer.Option("--surrogate", help="With the gradient of another function.")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="With two inputs, whose rows are independent.")] = False,
    folder: Annotated[Path, typer.Option(help="The folder of the page, which is made.")] = Path("my_ops"),
) -> None:
    """Write the page of a new op, FOLDER/NAME.py: a small op that passes its checks, to change into yours.

    Its order is that of all pages: the formulas, forward, vjp, vjp_vjp, reference, OP. A file that exists stays.
    """
    kinds = {"native": native, "surrogate": surrogate, "rows": rows}
    chosen = [kind for kind, is_chosen in kinds.items() if is_chosen] or ["page"]
    if len(chosen) > 1:
        raise BadArgument(f"expected one of --native, --surrogate and --rows, got --{' --'.join(chosen)}")
    if not NAME.fullmatch(name):
        raise BadArgument(f"expected a name of lower-case letters, digits and _, such as cube, got {name!r}")
    # TensorFlow makes my_ops_flat of MyOpsFlat, and of words of one letter or digit something else.
    flat = name.replace("_", "")
    words = {"name": name, "title": name.replace("_", " ").capitalize(), "flat": flat, "camel": flat.capitalize()}
    written = list[Path]()
    for ending in (".cc", ".py") if native else (".py",):
        text = Template((TEMPLATES / f"{chosen[0]}{ending}.txt").read_text(encoding="utf-8")).substitute(words)
        written.append(write_new(folder / f"{name}{ending}", text))
    print(f"Wrote {' and '.join(map(str, written))}. Next:")
    page = shlex.quote(str(written[-1]))
    for command in (*([f"pullback native {shlex.quote(str(folder))}"] if native else []), f"pullback check {page}"):
        print(f"  {command}")
    print(f"  pullback serve {shlex.quote(str(folder))}")


def write_new(path: Path, text: str) -> Path:
    """Write a new file; raise ``BadArgument`` if it exists or cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise BadArgument(f"{path} exists; choose another name, or remove it") from None
    except OSError as error:
        raise BadArgument(f"cannot write {path}: {error.strerror}") from None
    return path


def skill(
    to: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write FOLDER/SKILL.md, which must be new.")] = None,
) -> None:
    """Print a skill for agents: how to write the page of an op, check it, and read the verdict.

    Agents read skills from folders of their own, such as .claude/skills/pullback.
    """
    text = (TEMPLATES / "skill.md.txt").read_text(encoding="utf-8")
    if to is None:
        print(text, end="")
    else:
        print(f"Wrote {write_new(to / 'SKILL.md', text)}.")
