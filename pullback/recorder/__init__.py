"""Checks of the gradients of a server at the inputs of an application, which calls it through this process.

``relay`` passes the bytes on, ``reservoir`` keeps a sample of the inputs, ``pace`` says when a check may ask the
server, ``checker`` is the process that checks, and ``recording`` runs all four from the first request to the report.
"""
