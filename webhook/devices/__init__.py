"""Which nodes have the devices that pods' claims ask for (Dynamic Resource Allocation). Pure."""
