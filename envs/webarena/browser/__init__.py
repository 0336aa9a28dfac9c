"""A real Chromium through Playwright: observations, actions, and time limits for pages that hang."""
