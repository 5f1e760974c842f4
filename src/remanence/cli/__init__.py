"""The command line: `main` lists the commands, and each has its own file. No logic lives here."""
