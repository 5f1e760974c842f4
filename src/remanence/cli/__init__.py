"""The command line: a table of commands in `main`, one file each. No logic."""
