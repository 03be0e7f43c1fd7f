"""The Connect wizard between its pages and the rooms: reads what was typed, calls the services."""
