//! HTTP: a client for delivery, and a small server for metrics and webhooks.
//!
//! The server takes a few connections at a time, one request each, with bounds on head, body and time. It
//! is meant for a scraper on loopback, not for the Internet.

mod client;
mod server;

pub use client::{Body, Client, ClientError, ClientOptions};
pub use server::{Limits, Request, RequestError, Response, Server, read_request, write_response};
