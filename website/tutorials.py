"""Run the notebooks of docs/tutorials, each against a new service: ``python website/tutorials.py [NAME...]``.

A tutorial is a pair of files: NAME.py, which people edit, and NAME.ipynb, which keeps what its cells have printed.
The kernel runs in the environment of its framework, and finds the packages of notebooks in that of this program.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE

import jupytext
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials"
SERVICE = ROOT / ".venv"
ENVIRONMENTS = {
    "first_op": SERVICE,
    "sampler": ROOT / "build/frameworks-pymc",
    "physics_informed_fit": ROOT / "build/frameworks-jax",
    "straight_through_network": ROOT / "build/frameworks-torch",
    "expensive_function": SERVICE,
    "forces": ROOT / "build/frameworks-ase",
}
CELL_LIMIT_S = 300
LAUNCH = "import runpy, sys; sys.path.append({!r}); runpy.run_module('ipykernel_launcher', run_name='__main__')"
DEFAULT_URL = "http://127.0.0.1:8000"
LOOPBACK = re.compile(r"http://127\.0\.0\.1:\d+")


@contextmanager
def service() -> Iterator[str]:
    """Start the service on a free port of loopback; yield its address."""
    command = [SERVICE / "bin/pullback", "serve", ROOT / "docs/examples/forces"]
    environment = {**os.environ, "PULLBACK_PORT": "0", "PULLBACK_DRAIN_S": "0"}
    with subprocess.Popen(command, env=environment, stdout=PIPE, stderr=DEVNULL, text=True) as process:
        try:
            assert process.stdout
            yield LOOPBACK.findall(process.stdout.readline())[0]
        finally:
            process.terminate()


def kernel(folder: Path, environment: Path) -> dict[str, str]:
    """Write the kernel of an environment into a folder; return the variables with which it is found and runs."""
    home = folder / "kernels/python3"
    home.mkdir(parents=True)
    launch = LAUNCH.format(sysconfig.get_path("purelib"))
    argv = [str(environment / "bin/python"), "-P", "-c", launch, "-f", "{connection_file}"]
    (home / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
    (folder / "matplotlibrc").write_text("figure.dpi: 100\n")
    return {
        "JUPYTER_PATH": str(folder),
        "MATPLOTLIBRC": str(folder),
        "PULLBACK_DRAIN_S": "0",
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }


def executed(name: str) -> NotebookNode:
    """Return the notebook of a tutorial with the outputs of its cells. Raises ``CellExecutionError``."""
    notebook = jupytext.read(FOLDER / f"{name}.py")
    with tempfile.TemporaryDirectory() as support, tempfile.TemporaryDirectory() as folder, service() as url:
        # The first tutorial starts a service of its own, on the port of the pages.
        given = {} if name == "first_op" else {"PULLBACK_URL": url}
        os.environ.update(kernel(Path(support), ENVIRONMENTS[name]) | given)
        where = {"metadata": {"path": folder}}
        limits = {"timeout": CELL_LIMIT_S, "startup_timeout": CELL_LIMIT_S}
        NotebookClient(notebook, kernel_name="python3", resources=where, **limits).execute()
    return tidy(notebook)


def tidy(notebook: NotebookNode) -> NotebookNode:
    """Leave out of a notebook what differs between machines without saying anything."""
    notebook.metadata.pop("language_info", None)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata.pop("execution", None)
        if "outputs" in cell:
            # Logs and warnings, which have paths and times.
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.get("outputs", ()):
            if "text" in output:
                output.text = LOOPBACK.sub(DEFAULT_URL, output.text)
    return notebook


def main(*names: str) -> None:
    """Run tutorials, by default all, and write their notebooks."""
    if unknown := {*names} - ENVIRONMENTS.keys():
        sys.exit(f"expected names of tutorials ({', '.join(ENVIRONMENTS)}), got {', '.join(sorted(unknown))}")
    for name in names or ENVIRONMENTS:
        began = time.monotonic()
        jupytext.write(executed(name), FOLDER / f"{name}.ipynb", fmt="ipynb")
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
