"""Jobs that are dispatched whole: their kinds, their copies, and the status that comes back."""
