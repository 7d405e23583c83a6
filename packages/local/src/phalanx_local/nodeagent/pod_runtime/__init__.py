"""Runtime of pods: container lifecycles, images, processes (real or simulated) and logs."""
