"""Jobs: requests that are answered later, each by a process that can be ended."""
