"""Resolution of the declarations of pods and objects into one `Gang`, and the status of gang objects."""
