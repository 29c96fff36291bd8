"""The demonstration: a confined shell in a private internet, what it tried, and what came of it."""
