"""Who may ask, and how often: what the processes of one service share of it."""

from dataclasses import dataclass

from lensbox.serve.security.api_keys import KeyFile
from lensbox.serve.security.token_buckets import TokenBuckets
from lensbox.serve.settings import Settings


@dataclass(frozen=True)
class Access:
    """None: whoever can connect may ask; as often as they like. Can be pickled as a process' argument."""

    key_file: KeyFile | None
    buckets: TokenBuckets | None

    @classmethod
    def of(cls, settings: Settings) -> "Access":
        """What the settings ask for. Raises KeyFileError."""
        key_file = None if settings.api_keys_file is None else KeyFile(settings.api_keys_file)
        if not settings.rate_limit:
            return cls(key_file, None)
        burst = settings.rate_burst or max(1, round(settings.rate_limit))
        return cls(key_file, TokenBuckets(settings.rate_limit, burst))
