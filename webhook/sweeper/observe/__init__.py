"""What is there: live copies of the cluster, the view that one pass works on, and the gangs in it."""
