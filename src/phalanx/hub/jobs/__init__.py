"""Jobs that are dispatched as a whole: their kinds, their copies, and the status that is mirrored back."""
