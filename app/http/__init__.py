"""HTTP connections and requests: sockets, bodies, limits, deadlines, errors, the access log."""
