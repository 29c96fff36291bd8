"""The product: command line, lab and demo; the only place where the parts meet."""
