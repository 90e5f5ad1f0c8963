"""`kformer` and `python -m kformer`."""

import sys

from kformer.cli.main import app


def main() -> None:
    """Runs the command line; what a user can mend is one line on standard error, without a traceback."""
    try:
        app()
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        print(f"kformer: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
