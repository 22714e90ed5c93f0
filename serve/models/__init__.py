"""Models and their versions: the files, the loaded bytes, what a process answers for.

`processes.repository` has the swap of versions: `processes.group` starts the engines of a version, and
`processes.follower` moves the reference of each front end.
"""
