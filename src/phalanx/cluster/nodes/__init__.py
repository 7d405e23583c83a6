"""Rows of the node table: amounts, labels, taints, images, measured load."""
