"""What each path needs of a key: none, or a key with a scope."""

# The paths of probes, which have no key and use addresses as the host.
HEALTH = "/health/"
# The pages of the explorer need no key. They ask the user for one, and send it with each request for data.
EXPLORER = "/explore"
# The path of language models' tools, each of which has a scope.
TOOLS = "/mcp"
JOBS = "/v1/jobs"


def scope_of(method: str, path: str) -> str:
    """Return the scope of a request, empty if its route asks for that of what the body names."""
    # A key finds only its own jobs, of requests for which it had the scope.
    if path in (TOOLS, JOBS) or path.startswith(f"{JOBS}/"):
        return ""
    if path == "/metrics":
        return "operate"
    if method not in ("GET", "HEAD") and (path == "/v1/graphs" or path.startswith("/v1/graphs/")):
        return "post"
    if method not in ("GET", "HEAD") and path.startswith("/v1/ops/") and path.endswith("/parameters"):
        return "post"
    if path == "/v1/checks" or (path.startswith("/v1/ops/") and path.endswith(("/check", "/verify"))):
        return "check"
    return "call"


def needs_key(path: str) -> bool:
    """Return whether a path needs a key where the service has keys."""
    return not path.startswith((HEALTH, f"{EXPLORER}/")) and path not in ("/", EXPLORER)
