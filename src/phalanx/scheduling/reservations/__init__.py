"""Room in time: what will be free when, who starts when, and what is kept for whom until then."""
