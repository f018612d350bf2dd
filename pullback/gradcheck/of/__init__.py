"""The kinds of functions that are checked: of other people's servers, of calculators, and of this process."""
