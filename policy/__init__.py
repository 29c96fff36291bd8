"""What may leave, decided without looking at anything: no input, no output, no clock of its own."""
