"""The command `seq2seq`: each module here is one of its subcommands, `app` puts them together."""


class UsageError(ValueError):
    """The command was typed wrongly; the process ends with exit code 2, with 1 for any other `ValueError`."""
