"""The express way: requests that repeat earlier ones but for their numbers, answered many in one call of an op."""
