"""What decoding one image of a stranger may cost beside what the settings say: `docs/service.md` lists it."""

# Enough for a screenshot of 1920 x 1080, which is what run-length coding was made for.
MAX_RUN_LENGTH_PIXELS = 1 << 21

# 40 million pixels of RGB, 30 of RGBA, 15 of RGBA with 16 bits a sample. Those that inflate from next to
# nothing and are filtered in the slowest way take 1.6 s of a thread.
MAX_PNG_BYTES = 120_000_000
