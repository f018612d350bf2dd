"""``pullback native``: build the C++ ops of folders, or those of the installed service."""

import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from pullback.errors import BadArgument
from pullback.service_process import PACKAGE, SERVICE

# TensorFlow for the CPU and for GPUs are two distributions of one package.
DISTRIBUTIONS = ("tensorflow-cpu", "tensorflow")
OWN = SERVICE / "ops"
FLAGS = "tensorflow.flags"


class TensorFlow(NamedTuple):
    """The installed TensorFlow, found without the seconds that its import takes: its version and its folder."""

    version: str
    folder: Path

    @property
    def compile_flags(self) -> list[str]:
        """The flags of ``tf.sysconfig.get_compile_flags``; -isystem in place of -I shows only the op's own warnings."""
        include = ["-isystem", str(self.folder / "include")]
        return [*include, "-D_GLIBCXX_USE_CXX11_ABI=1", "--std=c++17", "-DEIGEN_MAX_ALIGN_BYTES=64"]

    @property
    def link_flags(self) -> list[str]:
        """The flags of ``tf.sysconfig.get_link_flags``."""
        return [f"-L{self.folder}", "-l:libtensorflow_framework.so.2"]


def native(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER", help="Folders with C++ files."),
    ] = None,
    service: Annotated[bool, typer.Option("--service", help="Build those of the installed service.")] = False,
) -> None:
    """Build the C++ ops of folders: FOLDER/<stem>.cc becomes FOLDER/build/<stem>.so.

    Needs g++, or the compiler that CXX names. Builds what has changed, and everything after a change of TensorFlow.
    Exits with 2 if a file does not compile.
    """
    if service and PACKAGE.parent == SERVICE:
        raise BadArgument("in a clone of the repository, `make native` builds the service's own ops")
    chosen = [*(folders or ()), *([OWN] if service else ())]
    if not chosen:
        raise BadArgument("expected a folder with C++ files, such as my_ops; --service builds those of the service")
    tensorflow = _tensorflow()
    sources = [source for folder in chosen for source in _outdated(folder, tensorflow)]
    with ThreadPoolExecutor(os.cpu_count()) as compilers:
        built = list(compilers.map(partial(_compile, tensorflow=tensorflow), sources))
    raise typer.Exit(0 if all(built) else 2)


def command(source: Path, library: Path, tensorflow: TensorFlow) -> list[str]:
    """Return the command that compiles a source into a library."""
    compiler = shlex.split(os.environ.get("CXX") or "g++")
    files = ["-fPIC", "-shared", "-o", str(library), str(source)]
    return [*compiler, "-O3", "-Wall", *tensorflow.compile_flags, *files, *tensorflow.link_flags]


def _tensorflow() -> TensorFlow:
    spec = find_spec("tensorflow")
    for name in DISTRIBUTIONS if spec and spec.origin else ():
        with suppress(PackageNotFoundError):
            return TensorFlow(version(name), Path(str(spec and spec.origin)).parent)
    raise BadArgument('TensorFlow is not installed here: pip install "pullback[serve]"')


def _library(source: Path) -> Path:
    """Return the library of a source."""
    folder = SERVICE if source.parent == OWN else source.parent
    return folder / "build" / f"{source.stem}.so"


def _outdated(folder: Path, tensorflow: TensorFlow) -> list[Path]:
    """Return the sources to compile; remove the libraries of earlier versions."""
    if not folder.is_dir():
        raise BadArgument(f"expected a folder with C++ files, got {folder}")
    sources = sorted(folder.glob("*.cc"))
    if not sources:
        raise BadArgument(f"expected C++ files (*.cc) in {folder}, found none")
    text = "\n".join([tensorflow.version, *tensorflow.compile_flags, *tensorflow.link_flags, ""])
    flags = _library(sources[0]).with_name(FLAGS)
    try:
        flags.parent.mkdir(exist_ok=True)
        if not flags.exists() or flags.read_text() != text:
            outdated = sources
        else:
            outdated = [source for source in sources if not _is_newer(_library(source), source)]
        for source in outdated:
            # A source that no longer compiles must not be served as it was.
            _library(source).unlink(missing_ok=True)
        # Whole, for whoever reads it meanwhile.
        (new := flags.with_suffix(f".{os.getpid()}")).write_text(text)
        new.replace(flags)
    except OSError as error:
        raise BadArgument(f"cannot write {error.filename}: {error.strerror}") from None
    return outdated


def _is_newer(library: Path, source: Path) -> bool:
    return library.exists() and library.stat().st_mtime > source.stat().st_mtime


def _compile(source: Path, tensorflow: TensorFlow) -> bool:
    """Compile a source; replace its library as a whole."""
    print(f"Compiling {source}", flush=True)
    library, began = _library(source), time.monotonic()
    # Another process may compile the same source.
    new = library.with_suffix(f".{os.getpid()}")
    try:
        if is_built := _ran(command(source, new, tensorflow)):
            new.replace(library)
            print(f"Built {source.stem} in {time.monotonic() - began:.0f} s", flush=True)
    finally:
        new.unlink(missing_ok=True)
    return is_built


def _ran(arguments: list[str]) -> bool:
    try:
        return subprocess.run(arguments, stdin=subprocess.DEVNULL, check=False).returncode == 0
    except OSError as error:
        print(f"pullback: cannot run {arguments[0]}: {error.strerror}; install g++, or set CXX", file=sys.stderr)
        return False
