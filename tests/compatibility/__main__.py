"""``python -m tests.compatibility record``: record the answers of this version to the requests, and its names.

They are the promise of the version that is released next (docs/compatibility.md). Those of a version that is
released are never recorded again: a difference is a fault of the service, or waits for the next major version.
"""

import argparse
import json
import sys
from contextlib import closing

from packaging.version import Version

from tests.compatibility.replaying import replay
from tests.compatibility.requests import REQUESTS
from tests.compatibility.surface import surface
from tests.compatibility.test_old_requests import ANSWERS
from tests.compatibility.test_surface import SURFACES
from tests.docs.test_changelog import RELEASED
from tests.docs.test_docs import text_of
from tests.threaded_service import ThreadedService


def main() -> int:
    """Write ``answers/VERSION.json``, one request on each line, and ``surfaces``; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.compatibility", description=__doc__)
    parser.add_argument("command", choices=["record"])
    parser.parse_args()
    newest = max(Version(released) for released, _ in RELEASED.findall(text_of("CHANGELOG.md")))
    version = f"{newest.major}.{newest.minor + 1}.0"
    with closing(ThreadedService(CHECK_PROCESSES="1")) as service, service.client() as client:
        lines = [json.dumps({**request, "answer": answer}) for request, answer in replay(client, REQUESTS)]
    (ANSWERS / f"{version}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    kinds = [f"{json.dumps(kind)}: {json.dumps(names)}" for kind, names in surface().items()]
    (SURFACES / f"{version}.json").write_text("{\n" + ",\n".join(kinds) + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
