import atexit

from app import modes

atexit.register(lambda: print("TRACES", modes.trace_counts()))
