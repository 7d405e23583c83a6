"""From what pods and objects say about a gang to one `Gang`, and back to the status of its object."""
