"""Files read in threads, ahead of what their photographs are for."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from lensbox.errors import InputError
from lensbox.runtime.photo import Photo

File = TypeVar("File")


def read_batches(
    files: Iterable[File], read: Callable[[File], Photo], batch_size: int, threads: int
) -> Generator[list[Photo | InputError], None, None]:
    """Photographs in the order of their files, `batch_size` at a time; an unreadable file is its error.

    Beside the batch that was given out, at most two batches, or one and a photograph for each thread, are in
    memory. Closing the generator waits for the files that are being read, and leaves no thread behind.
    """
    ahead = batch_size + max(batch_size, threads)
    remaining = iter(files)
    waiting: deque[Future[Photo | InputError]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="lensbox-read") as pool:

        def fill_up() -> None:
            for file in islice(remaining, ahead - len(waiting)):
                waiting.append(pool.submit(_photo_or_error, read, file))

        try:
            fill_up()
            while waiting:
                batch = [waiting.popleft().result() for _ in range(min(batch_size, len(waiting)))]
                fill_up()  # before the batch is used: the threads are busy meanwhile
                yield batch
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _photo_or_error(read: Callable[[File], Photo], file: File) -> Photo | InputError:
    try:
        return read(file)
    except InputError as error:
        return error
    except OSError as error:  # such as FileNotFoundError
        return InputError(str(error))
