"""Run a Ray cluster of one machine with the application, and read commands from stdin.

usage: python ray_cluster.py PORT NAME=VALUE...

Writes `ready` once requests are answered. `kill` ends one replica as a crash does, and `replicas` writes how
many there are; the end of stdin ends all.
"""

import sys

import ray
from ray import serve
from ray.util import list_named_actors

from lensbox.serve.ray_app import DEPLOYMENT, app

_OBJECT_STORE = 80 << 20  # bytes; small, because requests do not use the object store


def replicas() -> list[str]:
    """Return the names of the replicas' actors."""
    actors = list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in actors if f"#{DEPLOYMENT}#" in actor["name"]]


def main(port: int, arguments: dict[str, str]) -> None:
    ray.init(num_cpus=2, object_store_memory=_OBJECT_STORE, include_dashboard=False, log_to_driver=True)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(app(arguments), name="lensbox")
    print("ready", flush=True)
    for command in sys.stdin:
        if command.strip() == "kill":
            ray.kill(ray.get_actor(replicas()[0], namespace="serve"))
        print(len(replicas()), flush=True)
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), dict(argument.split("=", 1) for argument in sys.argv[2:]))
