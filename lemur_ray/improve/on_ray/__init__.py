"""The learner and the server of an improvement run as Ray actors and a Ray Serve application."""
