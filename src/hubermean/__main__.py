"""`python -m hubermean`: the command line."""

from hubermean.cli.app import main

if __name__ == "__main__":
    main()
