"""What is wrong with declarations and can be mended: told once per change, by an event on the object."""
