"""Image files made to keep a decoder busy, and how long they do."""
