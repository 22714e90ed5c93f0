"""Errors, fields, files and facts of the machine that all folders share."""
