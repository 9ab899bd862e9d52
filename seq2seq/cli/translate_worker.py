"""A process that translates what another one, which has started it, hands it on standard input."""

import os
import sys

from seq2seq.cli.processes import end_with_parent, tell_parent_of_errors
from seq2seq.cli.translate_channel import Channel, work


def main() -> int:
    """Translate until the input ends; the exit code."""
    end_with_parent()
    tell_parent_of_errors()
    # Nothing else may get among the answers, whatever a library prints.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return work(Channel(sys.stdin.buffer, answers))


if __name__ == "__main__":
    sys.exit(main())
