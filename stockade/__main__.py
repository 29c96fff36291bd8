"""`python -I -m stockade` is the command `stockade`."""

from stockade.cli import main

main()
