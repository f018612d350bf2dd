"""Run the tests of remote ops in frameworks: ``python -m tests.frameworks FRAMEWORK...``.

The tests of a framework are test_FRAMEWORK.py, test_FRAMEWORK_*.py, its examples in the docs and, if it has
with_FRAMEWORK.py, test_all.py. They run in the environment build/frameworks-FRAMEWORK, which has the framework and what
the client needs, but not the service; those of TensorFlow in the environment of the service. The tests of PyMC are
also those of PyTensor, since PyMC needs an older PyTensor.
"""

import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.environments import failures, run

HERE = Path(__file__).parent


def main(*frameworks: str) -> int:
    """Run the tests of each framework; return 1 when any of them fails."""

    def run_one(framework: str, url: str) -> int:
        environment = sys.prefix if framework == "tensorflow" else f"frameworks-{framework}"
        shared = "pytensor" if framework == "pymc" else framework
        own = {path.name for path in HERE.glob(f"test_{shared}_*.py")}
        common = {"test_all.py"} if (HERE / f"with_{shared}.py").exists() else set[str]()
        files = sorted({*common, f"test_{shared}.py", f"test_{framework}.py", "test_page.py", *own})
        options = ["--url", url, "--framework", framework]
        # Threads that wait for each other's parts of small tensors take most of two cores.
        return run(environment, HERE, files, *options, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1")

    return bool(failures(frameworks, run_one))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
