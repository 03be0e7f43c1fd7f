"""Real components as processes: Dynamo with mockers, three routers with stand-in engines."""
