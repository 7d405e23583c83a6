"""The suite under load, several times (`make flaky`)."""
