"""`lensbox bench detector`: the detector in several runtimes, and what its time is made of."""
