"""How long a test waits for what must come. Only a failure takes so long: nothing is fast or slow here."""

PATIENCE_S = 300.0
# Between two looks: a loop without a pause takes a core from what it waits for, and from the other tests.
PAUSE_S = 0.05
