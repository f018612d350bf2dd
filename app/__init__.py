"""The service: registered ops and their derivatives over HTTP."""
