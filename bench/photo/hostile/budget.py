"""How much a hostile file may use of what the service allows: docs/service.md."""

MOST_BYTES = 1_000_000  # of a file; the service takes more, and its figure is for this size
MOST_PIECES = 100_000  # segments, chunks and the like
MOST_SCANNED_BLOCKS = 1 << 24  # of a progressive JPEG
SCANS_ALWAYS_ALLOWED = 20
MOST_PNG_BYTES = 120_000_000  # uncompressed
MOST_RUN_LENGTH_PIXELS = 1 << 21  # of a BMP
