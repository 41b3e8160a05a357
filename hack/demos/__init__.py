"""hack/demo: a gang from kubectl until it is placed."""
