"""Files that other people wrote into conversations: one file per published form, and the list of the public sets."""
