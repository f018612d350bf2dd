"""Who answers on which path: one router, and a package for each API."""
