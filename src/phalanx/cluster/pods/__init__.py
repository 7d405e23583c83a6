"""Records of pods and gangs: their nodes, their reservations, and the decisions about them."""
