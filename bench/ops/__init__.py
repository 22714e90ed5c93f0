"""`lensbox bench ops`: the box ops beside the implementations that a user would pick instead."""
