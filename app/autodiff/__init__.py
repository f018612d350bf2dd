"""Evaluation of ops and their derivatives: binding of requests, points, derivatives, matrices and programs."""
