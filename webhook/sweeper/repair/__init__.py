"""What is done about released pods that do not come to run: found, judged, and deleted to come again."""
