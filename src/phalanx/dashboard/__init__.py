"""Dashboard: web page with the cluster's queues, gangs and nodes, fed by one watch of the cluster that all viewers
share."""
