"""hack/demo: a gang goes from kubectl to placed."""
