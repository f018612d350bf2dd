"""Graphs of ops: a JSON document that composes ops is an op."""
