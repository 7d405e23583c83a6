"""Jobs that the hub dispatches as a whole: their kinds, their copies, and the status that is copied back."""
