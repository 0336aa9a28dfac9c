"""Django app with the page types of the CMS."""
