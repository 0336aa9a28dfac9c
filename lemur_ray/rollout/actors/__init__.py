"""The pool of actors (processes that play episodes): assignment of episodes, replacement of dead actors, Ray."""
