"""`python -m remanence` is the same as the command `remanence`."""

from .cli.main import main

if __name__ == "__main__":
    main()
