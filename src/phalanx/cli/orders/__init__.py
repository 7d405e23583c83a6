"""Commands that hold, release, cancel and move gangs of any API."""
