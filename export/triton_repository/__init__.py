"""A model repository of Triton Inference Server.

The folder is not called `triton`: to `python export/script_model.py`, whose folder comes first in its path,
it would be the package that torch imports under this name.
"""
