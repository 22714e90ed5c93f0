"""Files read in threads, ahead of what their photographs are for."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from lensbox.common.errors import InputError
from lensbox.runtime.photo import Photo

_MAX_GROUP = 8

File = TypeVar("File")


def read_batches(
    files: Iterable[File], read: Callable[[File], Photo], batch_size: int, threads: int
) -> Generator[list[Photo | InputError], None, None]:
    """Photographs in the order of their files, `batch_size` at a time; an unreadable file is its error.

    Beside the batch that was given out, at most two batches, or one and a photograph for each thread, are in
    memory. Closing the generator waits for the few files that each thread has taken, and leaves no thread.
    """
    # Threads take a few files at a time: each hand-over costs. Two turns a batch are left to each thread, so
    # that none waits long for another.
    group_size = max(1, min(_MAX_GROUP, batch_size // (2 * threads)))
    ahead = batch_size + max(batch_size, threads)
    remaining = iter(files)
    taken = given = 0
    waiting: deque[Future[list[Photo | InputError]]] = deque()
    ready: deque[Photo | InputError] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="lensbox-read") as pool:

        def fill_up() -> None:
            nonlocal taken
            while group := list(islice(remaining, min(group_size, ahead + given - taken))):
                taken += len(group)
                waiting.append(pool.submit(_photos_or_errors, read, group))

        try:
            fill_up()
            while taken > given:
                while waiting and len(ready) < batch_size:
                    ready.extend(waiting.popleft().result())
                batch = [ready.popleft() for _ in range(min(batch_size, len(ready)))]
                given += len(batch)
                fill_up()  # before the batch is used: the threads are busy meanwhile
                yield batch
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _photos_or_errors(read: Callable[[File], Photo], files: list[File]) -> list[Photo | InputError]:
    return [_photo_or_error(read, file) for file in files]


def _photo_or_error(read: Callable[[File], Photo], file: File) -> Photo | InputError:
    try:
        return read(file)
    except InputError as error:
        return error
    except OSError as error:  # such as FileNotFoundError
        return InputError(str(error))
