"""The docs as a site: the settings of mkdocs, and what it takes from outside of docs."""
