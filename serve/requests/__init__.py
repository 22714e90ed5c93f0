"""Turn request bodies into jobs: bodies, forms, images, JSON and protocol v2."""
