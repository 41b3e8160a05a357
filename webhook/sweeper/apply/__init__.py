"""How it is done: one write of the plan, then one guarded patch for each pod."""
