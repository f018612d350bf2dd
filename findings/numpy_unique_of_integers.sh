#!/usr/bin/env bash
# NumPy 2.4.6: np.unique of integers counts them in a hash table. For a million different ones it takes over five times
# as long as with return_inverse=True, which sorts, and it holds the interpreter's lock for a third of that: all other
# threads, such as an event loop, stop.
#
# Seen: unique 0.86 s, with return_inverse 0.06 s; another thread stopped for 0.30 s and 0.02 s. Exits with 0 if this is
# still so, and with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6
cat > "$folder/finding.py" <<'PYTHON'
import threading
import time

import numpy as np

x = np.random.default_rng(0).integers(0, 1 << 40, 1_000_000)


def measured(function):
    """Return the seconds of a call, and for how long at most another thread stopped during it."""
    gaps, ended = [], threading.Event()

    def tick():
        last = time.perf_counter()
        while not ended.is_set():
            time.sleep(0.001)
            gaps.append(time.perf_counter() - last)
            last = time.perf_counter()

    thread = threading.Thread(target=tick)
    thread.start()
    began = time.process_time()
    function()
    seconds = time.process_time() - began
    ended.set()
    thread.join()
    return seconds, max(gaps)


plain, inverse = measured(lambda: np.unique(x)), measured(lambda: np.unique(x, return_inverse=True))
print(f"unique {plain[0]:.2f} s, with return_inverse {inverse[0]:.2f} s; stopped {plain[1]:.2f} s, {inverse[1]:.2f} s")
raise SystemExit(0 if plain[0] > 5 * inverse[0] and plain[1] > plain[0] / 8 and plain[1] > 3 * inverse[1] else 1)
PYTHON
"$folder/venv/bin/python" "$folder/finding.py"
