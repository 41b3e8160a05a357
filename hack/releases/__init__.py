"""What a release is made of: the Helm chart, install.yaml, archives, checksums and notes."""
