"""Dashboard: web page of the scheduler's state, fed by one watch of the cluster that all viewers share."""
