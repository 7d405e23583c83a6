"""Orders to a gang of any dialect, through the API of its owner: hold, release, cancel."""
