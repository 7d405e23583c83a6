"""Runtime of pods on simulated nodes: container lifecycles, images, processes (real or simulated) and logs."""
