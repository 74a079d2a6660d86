"""`python -m cookie`: the same as the `cookie` script."""

from cookie.cli.app import main

if __name__ == "__main__":
    main()
