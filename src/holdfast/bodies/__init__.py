"""Message bodies: to JSON text and back, encrypted at rest, and checked before they are published."""
