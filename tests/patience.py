"""How long a test waits for what must come. Only a failure takes so long: nothing is fast or slow here."""

PATIENCE_S = 300.0
