"""`python -m kformer`."""

from kformer.cli.main import main

if __name__ == "__main__":
    main()
