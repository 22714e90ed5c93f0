"""Speak HTTP: the app, its middleware, its routes, and the server that runs it."""
