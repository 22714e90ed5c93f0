"""The service as several processes (Linux): front ends speak HTTP and decode images, engines compute.

| process             | runs                                   | uses                                |
| ------------------- | -------------------------------------- | ----------------------------------- |
| supervisor          | `supervisor.run`                       | `heartbeat`                         |
| fork server         | multiprocessing's, after `fork_server` |                                     |
| front ends          | `child.frontend_main`, `http.server`   | `remote_engine`, `http.admission`   |
| engine, per device  | `engine_process.main`                  | `engine.instance`                   |

Front ends and engines send `messages` over a `link`; images lie in `shared_memory`. Nothing is imported
here: the supervisor does not need torch.
"""
