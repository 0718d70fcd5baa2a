"""Short reads of several owners: asked without a task, merged on the event loop."""
