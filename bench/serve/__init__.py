"""How much the HTTP service takes, and how long it takes: load from another process, closed and open loop."""
