"""`lensbox bench serve`: the HTTP service under load, beside the artifact in process and LitServe."""
