"""Run the tests of the explorer: ``python -m tests.browser [--pictures] [PYTEST OPTION...]``.

They run in build/clients-browser, which has Playwright and Node.js but not the service, against a service with a wrong
op, and one that needs a key. Screenshots are written to build/explorer; ``--pictures`` makes those of the docs anew.
"""

import sys
import tempfile
from pathlib import Path

from pullback import reports
from pullback.html.page import page
from tests.client.documents import check, report
from tests.clients.__main__ import guarded_service
from tests.conftest import ROOT, Service
from tests.environments import run

HERE = Path(__file__).parent


def main(*options: str) -> int:
    """Run the tests; return 1 when any of them fails."""
    with tempfile.TemporaryFile() as log, guarded_service() as guarded:
        service = Service.launched(log, OPS_PATH=str(HERE / "plugins"))
        try:
            given = ["--url", service.wait_until_ready().url, "--guarded-url", guarded.url, "--key", guarded.key]
            output = ROOT / "build" / "explorer"
            output.mkdir(parents=True, exist_ok=True)
            (output / "report.html").write_text(html_report(), encoding="utf-8")
            failed = run("clients-browser", HERE, ["."], *given, "--output", str(output), *options)
            if failed:
                print(f"the end of the service's log:\n{service.log()[-4000:]}")
        finally:
            service.close()
    return bool(failed)


def html_report() -> str:
    """Return the page of ``pullback check --html`` on an op with as many checks as there are."""
    checks = [check("fail" if i % 5 == 1 else "pass", check=f"check_number{i}") for i in range(19)]
    return page([reports.report(report("wrong_dot", *checks)), reports.report(report("square", *checks[::5]))], {})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
