"""What can be told to a gang of any dialect: hold, release, cancel, move."""
