"""Drives a real Chromium through Playwright: observations, actions, logins, and time limits for pages that hang."""
