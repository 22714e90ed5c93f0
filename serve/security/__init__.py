"""Who may ask, how often, from where, and over what: keys, rates, origins, headers, TLS."""
