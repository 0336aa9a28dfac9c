"""Page types of the CMS."""
