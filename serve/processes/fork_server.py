"""What the fork server imports first: it ends with the supervisor, and its processes end with it.

On its own it would live as long as one of them. For that process alone: importing this is all it takes.
"""

from lensbox.serve.processes.parent_death import end_with_parent

end_with_parent()
