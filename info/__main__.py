"""`python -m lensbox.info`."""

from lensbox.info.report import report

for name, value in report():
    print(f"{name}: {value}")
