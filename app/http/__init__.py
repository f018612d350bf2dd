"""The HTTP side of one connection and one request: sockets, bodies, limits, deadlines, errors, the access log."""
