"""What runs, or plays, the containers of a pod: their lives, images, processes and logs."""
