"""The detector as the formats take it: copied, wrapped, in a precision, for batches, as a graph."""
