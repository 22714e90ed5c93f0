"""`lensbox bench article`: the experiment of the article that this project began from, and its answer."""
