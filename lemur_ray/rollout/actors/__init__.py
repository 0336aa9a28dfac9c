"""The pool of actors: which actor gets the next episode, what happens when one dies, and how an actor runs in Ray."""
