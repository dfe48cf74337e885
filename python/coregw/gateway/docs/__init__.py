"""The OpenAPI document: its builder, its examples, and the viewer that the gateway serves beside it."""
