"""The page: what the cluster's batch scheduler does, watched once and told to everybody who may see it."""
