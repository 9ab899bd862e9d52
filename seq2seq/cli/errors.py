"""What is told of an error that users can cause and mend, and the exit code that goes with it."""

import re

from seq2seq.cli import UsageError


def told(error: BaseException) -> tuple[str, int] | None:
    """The message and the exit code; None for an error of our own, which is shown with its traceback."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}", 1
    if isinstance(error, UsageError):
        return str(error), 2
    if isinstance(error, (ValueError, OSError)):
        return str(error), getattr(error, "exit_code", 1)
    if isinstance(error, (MemoryError, RuntimeError)) and _is_out_of_memory(error):
        return _too_large(error), 1
    return None


def _is_out_of_memory(error: Exception) -> bool:
    """Whether there is no room for a tensor; torch raises nothing of its own for that on a CPU."""
    said = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError) or any(words in str(error) for words in said)


def _too_large(error: Exception) -> str:
    """What was asked for, if torch or NumPy says so, and what to do."""
    asked = re.search(r"(allocate (memory: you tried to allocate )?)([\d.]+ \w+)", str(error))
    amount = f" for a tensor of {asked[3]}" if asked else ""
    return (
        f"out of memory: there is no room{amount}; give less at once (--batch-tokens or --batch, in training "
        "data.batch_tokens), shorter text, or a smaller model"
    )
