//! The NATS client.
