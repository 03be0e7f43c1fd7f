"""The demo fleet: simulated engines behind real routers, driven by a replayed trace."""
