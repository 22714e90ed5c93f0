"""The HTTP service of one artifact: `lensbox.serve.http.app.create_app`, or `lensbox serve`.

Nothing is imported here, so that `lensbox serve --help` does not wait for torch.
"""
