"""Isolated execution of a model's code: one interface and one attack suite for all backends.

Which process starts which, and over what they communicate::

    harness     environments, graders: sandbox.py (the interface), warm_pool.py, python_repl.py, solution_process.py
       |          programs.py: exchanges JSON with the project's own programs in a sandbox
       |        backends/driven_sandbox.py: translates calls to orders, and answers to results
       |
       | starts: bubblewrap (backends/bwrap.py), or the Docker engine starts a container (backends/docker_backend.py,
       |         whose first process, inside/container_entry.py, enters a user namespace and becomes the keeper)
       v
    keeper      inside/keeper.py, one for each sandbox     <== socket 1 ==  backends/keeper_client.py
       |          holds the packed trees; the sandbox ends with it, and it ends with its socket
       | forks a generation with its own namespaces and root (inside/root.py); a reset kills it and forks the next
       v
    first       inside/init.py, process 1 of a generation  <== socket 2 ==  backends/connection.py (inside/wire.py)
    process       keeps its capabilities; no program of the policy holds an end of either socket
       |
       | forks, confines (inside/confine.py, syscall_filter.py), executes: the policy's user, no capability, limits
       v
    steps       one command each (inside/steps.py): output is streamed to the harness, background processes are killed
    sessions    a process that persists between steps: messages on descriptor 9, the nonce that ends a step on 8
    programs    sessions with the project's code, sent over descriptor 9 (inside/payload/channel.py): repl.py (cells),
                solution.py (the policy's functions), tester.py (tests, in a sandbox without code of the policy)
    files       reads and writes, by a confined child (inside/file_access.py); listings and hashes, by the first process

Only ``inside/`` runs in a sandbox (standard library only). Only ``backends/`` knows the backends."""
