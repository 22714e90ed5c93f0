"""Who is measured beside Lensbox. One small file a peer; `registry` lists them."""
