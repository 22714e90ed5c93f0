"""Synthetic photographs of faces, and the command on the CPU."""

from labelled_faces import faces_folder, faces_shard, lensbox_on_cpu  # noqa: F401
