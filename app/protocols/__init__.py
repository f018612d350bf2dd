"""Other people's protocols over the same engine: one file each, and the table of them in ``app.protocols.table``."""
