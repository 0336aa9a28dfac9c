"""Environment variables of Serve's controller, inherited by its proxies and replicas. Imports nothing.

A RayService manifest sets the same variables; ``cluster/check.py`` compares them."""

SERVE_ENV = {
    # By default Serve kills a proxy that is not up after 5 s: too short to import Ray on a busy machine.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
    # Tokens go from replica to proxy over gRPC instead of as Ray objects, with one thread switch less.
    "RAY_SERVE_PROXY_USE_GRPC": "1",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    # The proxy ends the streams of a dead replica.
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "lemur_ray.serve.on_ray.whole_streams.middlewares",
}
