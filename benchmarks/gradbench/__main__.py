"""A tool of GradBench that answers with a service: ``python -m benchmarks.gradbench [--url URL]``.

Messages come on stdin, and responses go to stdout. The service has the ops of the evals:
``pullback serve benchmarks/gradbench/pages``.
"""

import argparse
import sys

from benchmarks.gradbench.protocol import BrokenProtocol, responses
from pullback import Client, PullbackError


def main() -> int:
    """Answer until stdin ends; return 2 if a message cannot be answered."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gradbench", description=__doc__)
    parser.add_argument("--url", help="the service; else PULLBACK_URL, else port 8000 here")
    try:
        with Client(parser.parse_args().url) as client:
            for response in responses(sys.stdin.buffer, client):
                print(response, flush=True)
    except (BrokenProtocol, PullbackError) as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
