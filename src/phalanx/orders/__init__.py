"""What can be told to a gang of any dialect, by its owner's own API: hold, release, cancel."""
