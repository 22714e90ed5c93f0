"""How much a face can suffer until a detector misses it."""
