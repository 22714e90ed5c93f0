"""The words of `--decode`."""

import pytest

from lensbox.common.decode import DECODE, check_decode


def test_other_words_are_refused() -> None:
    for word in DECODE:
        check_decode(word)
    with pytest.raises(ValueError, match="decode must be 'auto', 'cpu' or 'gpu', got 'nvjpeg'"):
        check_decode("nvjpeg")
