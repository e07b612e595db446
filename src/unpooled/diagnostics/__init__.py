"""Questions to ask before believing an answer."""
