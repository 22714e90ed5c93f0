"""Photographs that anyone may show: for the demo, the pages, the stress test and the tests."""
