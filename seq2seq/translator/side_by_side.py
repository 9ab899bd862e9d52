"""Batches decoded side by side: on a CPU one thread each is more than several threads for one after the other.

The products of a decode step are small, and between them there is work that no second thread helps with.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def side_by_side(function: Callable[[Task], Answer], tasks: Sequence[Task]) -> Iterator[Answer]:
    """The answer to each task, in their order, as many tasks at once as torch has threads.

    The threads are shared out among the tasks, and are torch's again when the iterator has come to its end or is
    closed. An error is raised in its place; tasks that have not begun are given up then.

    Args:
        function: Does a task; thread-safe. Torch lets others go on while it computes.
        tasks: What to do.
    """
    threads = torch.get_num_threads()
    at_once = min(threads, len(tasks))
    if at_once < 2:
        yield from map(function, tasks)
        return
    each = threads // at_once

    def begin() -> None:
        torch.set_num_threads(each)  # of this thread

    waiting: deque[Future[Answer]] = deque()
    left = iter(tasks)
    torch.set_num_threads(each)  # what torch knows of for the whole process, and new threads begin with
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="batch", initializer=begin)
    try:
        for task in left:
            waiting.append(pool.submit(function, task))
            if len(waiting) > at_once:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        torch.set_num_threads(threads)
