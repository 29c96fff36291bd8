"""One command, confined, from plan to outcome."""
