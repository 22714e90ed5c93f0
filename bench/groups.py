"""The groups of cases that `--only` names, in the order in which they are run."""

EXERCISE = "exercise"  # not made of cases: see `exercise`
GROUPS = ("headline", "weighted", "transfer", "nms", "cpu", "pairwise", EXERCISE, "sizes")
