"""The rules of the code base: the direction of imports, file names, and forbidden text.

Each rule is a function from ``{module: source}`` or ``{path: text}`` to the list of its breaches. It must find none
in the tree, and it must find a planted breach.
"""

import ast
import functools
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.settings import Settings
from tests import work_units

ROOT = Path(__file__).parents[1]
PACKAGES = ("app", "ops", "pullback")
NOT_OURS = {".git", ".venv", ".hypothesis", ".pytest_cache", ".ruff_cache", "__pycache__", "build", "dist"}

# The packages and modules of `app` that use HTTP. The rest works without a server.
WEB = (
    "__main__",
    "children",
    "fast_path",
    "http",
    "main",
    "requests",
    "routes",
)
# What the pages of ops import: the only part of `pullback` that needs TensorFlow.
VOCABULARY = "pullback.ops"
# What it imports from the rest of `pullback`.
FOR_PAGES = ("pullback.page_files", "pullback.service_process", "pullback.wording")
SERVERS = ("fastapi", "starlette", "uvicorn")
# The rooms of `app`: each imports only rooms below its own line.
LAYERS = (
    ("__main__",),
    ("children",),
    ("main",),
    ("routes", "fast_path"),
    ("requests",),
    ("http",),
    ("jobs",),
    ("execution",),
    ("kept", "processes"),
    ("telemetry", "gradcheck"),
    ("graphs",),
    ("autodiff",),
    ("runtime",),
    ("tensors",),
    ("settings", "errors"),
)
LEVELS = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
# What catches every exception and keeps ``Postponed`` too: it gives the exception to whoever waits for the work, leaves
# the request to the general path, ends its process, or calls nothing but a function of NumPy.
KEEPS_ALL = (
    "app.autodiff.admission",
    "app.children.fork_server",
    "app.execution.tickets",
    "app.fast_path.fast_path",
    "app.gradcheck.reference",
    "app.processes.forks",
    "app.runtime.traces",
)
# The leaves of `app`, and the modules of `app` that each may import.
LEAVES = {
    "app.errors": ("pullback.wording",),
    "app.settings": (),
    "app.tensors": ("app.tensors", "app.errors"),
}
# The imports inside functions, with "*" for those by a name that is known at run time. They load late what takes long,
# what is optional, or what a user names.
DEFERRED = {
    "app.__main__": {"app.children.reloader.Reloader", "app.children.serving"},  # TensorFlow
    "app.children.fork_server": {"*"},  # the process of jobs, which is the whole application
    "app.main": {"*"},  # the protocols of the settings
    "pullback.arrays": {"ml_dtypes"},
    "pullback.asyncio_connection": {"pullback.httpx_transport.AsyncioHttpx"},
    "pullback.blocking_connection": {"pullback.httpx_transport.BlockingHttpx"},
    "pullback.cli.bridges": {"pullback.philote.Discipline", "pullback.philote.serve"},  # gRPC
    "pullback.cli.watch": {"watchfiles.watch"},
    "pullback.ops._models": {"*"},  # Keras
    "pullback.ops._pages": {"*"},  # the pages of ops
    "pullback.pytest_plugin": {  # in runs of pytest without a page
        "pullback.cli.reproduction.PointFiles",
        "pullback.cli.reproduction.runnable_without_service",
        "pullback.findings.text_of",
        "pullback.findings.is_accepted",
        "pullback.gradcheck.check",
        "pullback.local_checks.LocalChecks",
        "pullback.ops.load_page",
        "pullback.reports.Report",
        "pullback.reports.Start",
    },
    "pullback.gradcheck.of.ase": {"*"},  # the calculator of the user
    "pullback.gradcheck.of.called": {"*"},  # the library of the function
    "pullback.gradcheck.of.named": {"*"},  # the function of the user
    "pullback.sparse": {"scipy.sparse"},
    "pullback.torch": {"ml_dtypes"},
}
EMPTY_NAMES = re.compile(r"(utils?|helpers?|common|misc|schemas?|managers?|services?)")

REGISTRY_HOST = re.compile(r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|anaconda\.(?:org|com)|crates\.io")
MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:work|opt|root|Users)/")
EXCUSE_ALONE = re.compile(r"#\s*(noqa|type:|pyright:)[^#]*$")
PIN = r"[A-Za-z0-9._-]+==[^ ;]+( ; [^;@\"-]+)?"
HASHED = re.compile(rf"{PIN}( --hash=sha256:[0-9a-f]{{64}})+")

LOCKS = ("uv", "client", "otel", "deploy", "docs", "release", "tutorials")
WITHOUT_TENSORFLOW = tuple(f"requirements/{name}.txt" for name in LOCKS)

Modules = Mapping[str, str]
Files = Mapping[str, str]


class Import(NamedTuple):
    """One name that a module imports, "*" if it is known at run time: its line, and whether a function imports it."""

    name: str
    line: int
    is_deferred: bool


def python_modules() -> Modules:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {module_name(path.relative_to(ROOT)): path.read_text() for path in paths}


def module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def text_files() -> Files:
    files: dict[str, str] = {}
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_OURS and not name.endswith(".egg-info")]
        for path in (Path(folder, name) for name in names if name not in NOT_OURS):
            if b"\0" not in (content := path.read_bytes()):
                files[str(path.relative_to(ROOT))] = content.decode(errors="replace")
    return files


# The source of every module is that of the tree in all tests but those of planted breaches.
parsed = functools.cache(ast.parse)


@functools.cache
def imports(source: str, module: str) -> tuple[Import, ...]:
    """Return all imports of a module at any depth, ``from a import b`` as ``a.b``."""

    def visit(node: ast.AST, is_deferred: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, child.lineno, is_deferred) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                parents = module.split(".")[: -child.level] if child.level else []
                base = ".".join([*parents, *([child.module] if child.module else [])])
                yield from (Import(f"{base}.{alias.name}", child.lineno, is_deferred) for alias in child.names)
            else:
                if isinstance(child, ast.Call) and ast.unparse(child.func).endswith("import_module"):
                    yield Import("*", child.lineno, True)
                is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from visit(child, is_deferred or is_function)

    return tuple(visit(parsed(source), False))


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def breaches(modules: Modules, where: Callable[[str], bool], forbidden: Callable[[str, Import], bool]) -> list[str]:
    """Return "module:line imports name" for each forbidden import in the modules where it is forbidden."""
    return [
        f"{module}:{found.line} imports {found.name}"
        for module, source in modules.items()
        if where(module)
        for found in imports(source, module)
        if forbidden(module, found)
    ]


def is_web(module: str) -> bool:
    return within(module, tuple(f"app.{name}" for name in WEB))


def ops_know_no_app(modules: Modules) -> list[str]:
    """Ops know their vocabulary, which knows neither the service, nor the ops, nor the client."""
    return breaches(
        modules,
        lambda m: within(m, ("ops", VOCABULARY)),
        lambda m, i: (
            within(i.name, ("app",))
            or (within(i.name, ("ops",)) and within(m, (VOCABULARY,)))
            or (within(i.name, ("pullback",)) and not within(i.name, (VOCABULARY, *FOR_PAGES)))
        ),
    )


def client_stands_alone(modules: Modules) -> list[str]:
    return breaches(
        modules,
        lambda m: within(m, ("pullback",)) and not within(m, (VOCABULARY,)),
        lambda m, i: within(i.name, ("app", "ops", VOCABULARY, *SERVERS)) and i.name not in DEFERRED.get(m, ()),
    )


def leaves_are_leaves(modules: Modules) -> list[str]:
    def leaf_of(module: str) -> str:
        return next(leaf for leaf in LEAVES if within(module, (leaf,)))

    return breaches(
        modules,
        lambda m: within(m, tuple(LEAVES)),
        lambda m, i: within(i.name, ("app", "ops", "pullback")) and not within(i.name, LEAVES[leaf_of(m)]),
    )


def room_of(name: str) -> str:
    """Return the room of ``app`` that a module, or a name imported from one, belongs to; "" for all others."""
    return name.split(".")[1] if name.startswith("app.") else ""


def imports_run_down_the_layers(modules: Modules) -> list[str]:
    def runs_up(module: str, found: Import) -> bool:
        here, there = room_of(module), room_of(found.name)
        return there in LEVELS and here != there and LEVELS[there] <= LEVELS[here]

    return breaches(modules, lambda m: room_of(m) in LEVELS, runs_up)


def every_room_has_a_layer(modules: Modules) -> list[str]:
    return [module for module in modules if within(module, ("app",)) and room_of(module) not in ("", *LEVELS)]


def nothing_is_patched_on_import(modules: Modules) -> list[str]:
    """No module assigns to an attribute of TensorFlow when it is imported."""
    wrong: list[str] = []
    for module, source in modules.items():
        imported = {
            (alias.asname or alias.name).split(".")[0]
            for node in ast.walk(parsed(source))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
            if (getattr(node, "module", None) or alias.name).split(".")[0] == "tensorflow"
        }
        for node in parsed(source).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                base = target
                while isinstance(base, ast.Attribute):
                    base = base.value
                if isinstance(target, ast.Attribute) and isinstance(base, ast.Name) and base.id in imported:
                    wrong.append(f"{module}:{node.lineno} assigns to {ast.unparse(target)}")
    return wrong


def servers_stay_outside(modules: Modules) -> list[str]:
    return breaches(
        modules,
        lambda m: within(m, ("app", "ops", VOCABULARY)) and not is_web(m),
        lambda _, i: within(i.name, SERVERS) or is_web(i.name),
    )


def tensorflow_stays_inside(modules: Modules) -> list[str]:
    places = (
        "app.http",
        "app.requests",
        "app.routes",
        "app.telemetry",
        "app.tensors",
        "app.errors",
        "app.settings",
        "pullback",
    )
    # These modules are for users who have TensorFlow; no other module imports them.
    exempt = ("pullback.tensorflow", "pullback.gradcheck.of.tensorflow")
    return breaches(
        modules,
        lambda m: within(m, places) and not within(m, (*exempt, VOCABULARY)),
        lambda _, i: within(i.name, ("tensorflow", *exempt)),
    )


def no_import_cycles(modules: Modules) -> list[str]:
    graph: dict[str, set[str]] = {}
    for module, source in modules.items():
        targets = (i.name if i.name in modules else i.name.rpartition(".")[0] for i in imports(source, module))
        graph[module] = {target for target in targets if target in modules and target != module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [" imports ".join(reversed(error.args[1]))]
    return []


def deferred_imports_are_declared(modules: Modules) -> list[str]:
    return breaches(modules, lambda m: True, lambda m, i: i.is_deferred and i.name not in DEFERRED.get(m, ()))


def private_tensorflow_has_a_reason(modules: Modules) -> list[str]:
    def has_reason(source: str, line: int) -> bool:
        before, same = ["", *source.splitlines()][line - 1 : line + 1]
        return before.lstrip().startswith("#") or ("#" in same and not EXCUSE_ALONE.search(same))

    return [
        f"{module}:{found.line} imports {found.name} and says no reason"
        for module, source in modules.items()
        for found in imports(source, module)
        if within(found.name, ("tensorflow.python",)) and not has_reason(source, found.line)
    ]


def what_is_postponed_passes(modules: Modules) -> list[str]:
    """What catches every exception lets ``Postponed`` pass first, or raises it again."""
    return [
        f"{module}:{handler.lineno} keeps what is postponed"
        for module, source in modules.items()
        if within(module, ("app",)) and module not in KEEPS_ALL
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Try)
        for before, handler in enumerate(node.handlers)
        if {"BaseException", ""} & names_caught(handler)
        and not any(isinstance(each, ast.Raise) and each.exc is None for each in ast.walk(handler))
        and not any({"Postponed", "NotTraced"} & names_caught(each) for each in node.handlers[:before])
    ]


def nothing_holds_the_lock(modules: Modules) -> list[str]:
    """The service calls nothing of NumPy that holds the interpreter's lock throughout, with large arrays too."""

    def holds(call: ast.Call) -> bool:
        # With an inverse, ``unique`` sorts; without one it makes a set of whole numbers.
        sorts = any(keyword.arg in ("return_inverse", "return_index") for keyword in call.keywords)
        return ast.unparse(call.func) in ("np.tile", "np.repeat", "np.add.at", *(() if sorts else ("np.unique",)))

    return [
        f"{module}:{node.lineno} holds the interpreter's lock: np.sort, np.broadcast_to and their copies do not"
        for module, source in modules.items()
        if within(module, ("app",))
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Call) and holds(node)
    ]


def names_caught(handler: ast.ExceptHandler) -> set[str]:
    """Return the names of the exceptions that a clause catches, "" for all of them."""
    if handler.type is None:
        return {""}
    return {each.id for each in ast.walk(handler.type) if isinstance(each, ast.Name)}


def names_say_something(files: Files) -> list[str]:
    return [
        path
        for path in files
        if path.endswith(".py") and any(map(EMPTY_NAMES.fullmatch, Path(path).with_suffix("").parts))
    ]


def no_hosts_or_machine_paths(files: Files) -> list[str]:
    return [
        f"{path}:{number} says {found[0]}"
        for path, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if (found := REGISTRY_HOST.search(line) or MACHINE_PATH.search(line))
    ]


def locked(lock: str) -> list[str]:
    """Return the lines of a lock without its comments, each with its continuation."""
    lines = [line for line in lock.splitlines() if line and not line.lstrip().startswith("#")]
    return re.sub(r" \\\n +", " ", "\n".join(lines)).splitlines()


def locks_have_hashes(files: Files) -> list[str]:
    """A lock lists only versions, each with the hashes of its files."""
    locks = {path: text for path, text in files.items() if re.fullmatch(r"requirements/[\w-]+\.txt", path)}
    return [
        f"{path}: {line.split(' --hash')[0]}"
        for path, text in locks.items()
        for line in locked(text)
        if not HASHED.fullmatch(line)
    ]


def locks_agree(files: Files) -> list[str]:
    """A lock has TensorFlow once; locks that share a package agree on its version."""
    wrong: list[str] = []
    versions: dict[str, str] = {}
    for path in sorted(path for path in files if re.fullmatch(r"requirements/\w+\.txt", path)):
        pins = [re.split(" ;| --hash", line)[0] for line in locked(files[path])]
        wrong += [
            f"{path}: {pin}, elsewhere {versions[n]}"
            for pin in pins
            if versions.setdefault(n := pin.split("==")[0], pin) != pin
        ]
        count = sum(re.match(r"tensorflow(-\w+)?==", pin) is not None for pin in pins)
        if count != (path not in WITHOUT_TENSORFLOW):
            wrong.append(f"{path}: expected one TensorFlow, got {count}")
    return wrong


def settings_are_documented(files: Files) -> list[str]:
    pages = "\n".join(text for path, text in files.items() if path == "README.md" or re.fullmatch(r"docs/.*\.md", path))
    names = [f"PULLBACK_{name.upper()}" for name in Settings.model_fields]
    return [f"{name} is in neither README.md nor docs/" for name in names if not re.search(rf"\b{name}\b", pages)]


MODULE_RULES = [
    (ops_know_no_app, {"ops.a": "def f():\n    from app import modes"}),
    (ops_know_no_app, {"ops.a": "import app.errors"}),
    (ops_know_no_app, {"ops.a": "from pullback.client import Client"}),
    (ops_know_no_app, {"pullback.ops._a": "from app import errors"}),
    (ops_know_no_app, {"pullback.ops._a": "from ops import square"}),
    (client_stands_alone, {"pullback.a": "from pullback.ops import Op"}),
    (client_stands_alone, {"pullback.a": "from app.main import create_app"}),
    (client_stands_alone, {"pullback.a": "try:\n    import ops\nexcept ImportError:\n    pass"}),
    (leaves_are_leaves, {"app.errors": "from app.settings import Settings"}),
    (leaves_are_leaves, {"app.settings": "from ops import Op"}),
    (leaves_are_leaves, {"app.tensors.json": "from app.runtime.modes import run"}),
    (leaves_are_leaves, {"app.tensors.json": "from ..binding import bind"}),
    (servers_stay_outside, {"app.autodiff.derivatives": "from starlette.types import Scope"}),
    (servers_stay_outside, {"app.gradcheck.report": "import fastapi"}),
    (servers_stay_outside, {"app.execution.scheduler": "from app.http.problems import render"}),
    (servers_stay_outside, {"ops.a": "import uvicorn.config"}),
    (imports_run_down_the_layers, {"app.http.deadlines": "from app.routes.router import Router"}),
    (imports_run_down_the_layers, {"app.autodiff.point": "def f():\n    from app.execution import scheduler"}),
    (imports_run_down_the_layers, {"app.telemetry.log": "import app.gradcheck.report"}),
    (every_room_has_a_layer, {"app.attic.box": ""}),
    (nothing_is_patched_on_import, {"app.runtime.a": "from tensorflow.python import x  # why\nx.context = None"}),
    (nothing_is_patched_on_import, {"app.runtime.a": "import tensorflow as tf\ntf.config.list = None"}),
    (tensorflow_stays_inside, {"app.routes.native.checks": "import tensorflow as tf"}),
    (tensorflow_stays_inside, {"app.tensors.json": "def f():\n    from tensorflow import cast"}),
    (tensorflow_stays_inside, {"pullback.a": "import tensorflow as tf"}),
    (tensorflow_stays_inside, {"pullback.a": "from pullback import tensorflow"}),
    (no_import_cycles, {"app.a": "from app import b", "app.b": "import app.c", "app.c": "from app.a import f"}),
    (no_import_cycles, {"app.a": "from app import b", "app.b": "def f():\n    from app.a import f"}),
    (deferred_imports_are_declared, {"pullback.a": "def f():\n    import scipy"}),
    (what_is_postponed_passes, {"app.a": "try:\n    f()\nexcept (A, BaseException) as e:\n    raise B from e"}),
    (nothing_holds_the_lock, {"app.a": "np.unique(x, return_counts=True)"}),
    (nothing_holds_the_lock, {"app.a": "np.tile(x, 2)"}),
    (what_is_postponed_passes, {"app.a": "try:\n    f()\nexcept A:\n    pass\nexcept:\n    pass"}),
    (deferred_imports_are_declared, {"app.a": "import importlib\nimportlib.import_module(NAME)"}),
    (client_stands_alone, {"pullback.a": "def f():\n    from pullback.ops import load_page"}),
    (private_tensorflow_has_a_reason, {"app.a": "from tensorflow.python.eager import context"}),
    (private_tensorflow_has_a_reason, {"app.a": "import os\nimport tensorflow.python  # noqa: F401"}),
]
LOCKED = f"numpy==2.4.6 \\\n    --hash=sha256:{64 * '0'}"
FILE_RULES = [
    (names_say_something, {"app/routes/utils.py": ""}),
    (names_say_something, {"app/services/checks.py": ""}),
    (no_hosts_or_machine_paths, {"a.md": "see https://" + "files.python" + "hosted.org/x"}),
    (no_hosts_or_machine_paths, {"a.txt": "--find-links " + "/".join(("", "opt", "wheels"))}),
    (no_hosts_or_machine_paths, {"a.py": 'HERE = "' + "/".join(("", "work", "main")) + '"'}),
    (locks_have_hashes, {"requirements/a.txt": "numpy==2.4.6"}),
    (locks_have_hashes, {"requirements/clients-a.txt": "numpy==2.4.6 \\\n    --hash=sha256:0"}),
    (locks_have_hashes, {"requirements/a.txt": f"{LOCKED}\n--index-url x"}),
    (locks_have_hashes, {"requirements/a.txt": f"{LOCKED}\nnumpy @ file:x"}),
    (locks_agree, {"requirements/a.txt": "tensorflow==2.21.0\ntensorflow-cpu==2.21.0"}),
    (locks_agree, {"requirements/a.txt": "tensorflow==1", "requirements/b.txt": "tensorflow==2"}),
    (
        settings_are_documented,
        {"docs/deployment.md": " ".join(f"PULLBACK_{n.upper()}X" for n in Settings.model_fields)},
    ),
]
INNOCENT: Modules = {
    "app.main": "from app.tensors import json\nfrom app.routes import router",
    "app.routes.router": "from app.http.request import Request",
    "app.tensors.json": "from app.errors import wrong\nfrom app.tensors import dtypes",
    "app.tensors.dtypes": "import ml_dtypes",
    "app.errors": "import enum",
    "app.routes.native.checks": "from fastapi import APIRouter\nfrom app.http.request import Request",
    "app.runtime.modes": "# Cancels a running graph: no public API does.\n"
    "from tensorflow.python.eager import cancellation",
    "ops": "from pullback.ops import *",
    "pullback.ops": "from pullback.ops._op import Op\nfrom pullback.service_process import SERVICE",
    "pullback.ops._op": "import tensorflow as tf",
    "ops.a": "from ops import Op",
    "pullback.tensorflow": "import tensorflow as tf",
    "pullback.pytest_plugin": "def pullback_op():\n    from pullback.ops import load_page",
}


def rules(planted: list[tuple[Any, Any]]) -> list[Any]:
    return list(dict.fromkeys(rule for rule, _ in planted))


@pytest.mark.parametrize("rule", rules(MODULE_RULES), ids=lambda rule: rule.__name__)
def test_modules_follow_the_rule(rule: Callable[[Modules], list[str]]) -> None:
    assert rule(python_modules()) == []


@pytest.mark.parametrize("rule", rules(FILE_RULES), ids=lambda rule: rule.__name__)
def test_files_follow_the_rule(rule: Callable[[Files], list[str]]) -> None:
    assert rule(text_files()) == []


@pytest.mark.parametrize(("rule", "planted"), [*MODULE_RULES, *FILE_RULES])
def test_a_planted_breach_is_found(rule: Callable[[Modules], list[str]], planted: Modules) -> None:
    assert rule(planted) != []


@pytest.mark.parametrize("rule", rules(MODULE_RULES), ids=lambda rule: rule.__name__)
def test_innocent_modules_pass(rule: Callable[[Modules], list[str]]) -> None:
    assert rule(INNOCENT) == []


def test_every_declared_import_exists() -> None:
    found = {m: {i.name for i in imports(source, m) if i.is_deferred} for m, source in python_modules().items()}
    assert {module: names for module, names in found.items() if names} == DEFERRED


def test_the_whole_tree_is_checked() -> None:
    assert {"app.errors", "app.tensors.dtypes", "ops", "pullback.ops._op", "pullback"} <= set(python_modules())
    assert {"Makefile", ".ci/run", "requirements/cpu.txt", "tests/test_house.py"} <= set(text_files())


def test_tests_of_one_run_have_different_names() -> None:
    elsewhere = tomllib.loads(text_files()["pyproject.toml"])["tool"]["pytest"]["ini_options"]["norecursedirs"]
    paths = [Path(path) for path in text_files() if path.startswith("tests/")]
    tests = Counter(path.name for path in paths if path.name.startswith("test_") and path.parts[1] not in elsewhere)
    assert [name for name, count in tests.items() if count > 1] == []


def test_the_work_units_name_files_that_exist() -> None:
    ops = [f"ops/{name}.py" for name in work_units.SLOW_OPS]
    named = (*work_units.FILES_OF_THE_SERVICE, *work_units.APART, *work_units.THROUGH_ALL_OPS, *ops)
    assert [path for path in named if not (ROOT / path).is_file()] == []
