"""Isolated execution of a model's code: one interface and one attack suite for all backends.

Which process starts which, and over what they communicate::

    harness     environments, graders: sandbox.py (the interface), warm_pool.py, python_repl.py, solution_process.py
       |          programs.py: our own programs for a sandbox, spoken with in JSON
       |        backends/driven_sandbox.py: calls become orders, answers become results
       |
       | starts: bubblewrap (backends/bwrap.py), or the Docker engine starts a container (backends/docker_backend.py,
       |         whose first process, inside/container_entry.py, takes a user namespace and becomes the keeper)
       v
    keeper      inside/keeper.py, one for each sandbox     <== socket 1 ==  backends/keeper_client.py
       |          holds the packed trees; its end is the sandbox's end, and it ends with its socket
       | forks a generation: namespaces and a root of its own (inside/root.py); a reset kills it and forks the next
       v
    first       inside/init.py, process 1 of a generation  <== socket 2 ==  backends/connection.py (inside/wire.py)
    process       keeps its capabilities; no program of the policy holds an end of either socket
       |
       | forks, confines (inside/confine.py, syscall_filter.py) and executes: the policy's user, no capability, limits
       v
    steps       one command each (inside/steps.py): output goes to the harness as it comes, then all it left is killed
    sessions    a process that lives from step to step: messages at descriptor 9, the word that ends a step back at 8
    programs    sessions of ours, whose texts come over descriptor 9 too (inside/payload/channel.py): repl.py (cells),
                solution.py (a solution that is called), tester.py (tests, in a sandbox without any code of the policy)
    files       reads and writes, by a confined child (inside/file_access.py); listings and hashes, by the first process

``inside/`` is all that is taken into a sandbox: standard library only. ``backends/`` is all that knows a backend.
"""
