"""One module for each endpoint."""
