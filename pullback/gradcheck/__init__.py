"""What the checks of ops share with those of other people's servers: numeric derivatives and verdicts, in NumPy."""
