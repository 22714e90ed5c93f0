"""Training and evaluation of detectors on photographs labelled in the WIDER FACE layout."""
