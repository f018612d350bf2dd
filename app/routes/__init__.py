"""The routes of the service: one router, and a package for each API."""
