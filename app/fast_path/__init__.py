"""The fast path: requests that differ from earlier ones only in their numbers, answered many in one call of an op."""
