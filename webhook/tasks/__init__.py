"""GPUTasks: one object for one GPU job, which becomes an owned Job."""
