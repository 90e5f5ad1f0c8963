"""Commands in this process."""

from typer.testing import CliRunner

from kformer.cli.main import app


def run(*arguments):
    """What a command prints that succeeds."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(*arguments):
    """The message of a command that refuses what it is asked."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 1
    return str(result.exception)
