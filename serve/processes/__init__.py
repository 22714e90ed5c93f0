"""The service as several processes (Linux): front ends speak HTTP and decode images, engines compute.

| process    | runs                                   | uses                                       |
| ---------- | -------------------------------------- | ------------------------------------------ |
| supervisor | `supervisor.run`                       | `repository` (swaps), `group`, `lifecycle` |
| front ends | `frontend_process.main`, `http.server` | `follower` (swaps), `remote_engine`        |
| engines    | `engine_process.main`                  | `engine.instance`, `models.files`          |

Front ends and engines send `messages` over a socket, with images in its shared memory. The supervisor and its
processes send the records of `models.control`.
"""
