"""The wire contract: every key and every codec of labels and annotations, pure and in one place.

Nothing else in the project spells a key or formats one of these values.
"""
