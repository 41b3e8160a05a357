"""What a person types: topogate, also as kubectl topogate."""
