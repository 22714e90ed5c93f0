"""How large a hostile file may be. What else it may use are the service's own limits, all of each."""

MOST_BYTES = 1_000_000  # the service takes more, and its figure is for this size
