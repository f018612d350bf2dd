"""The checks of a function, each against the protocol ``Function`` alone."""
