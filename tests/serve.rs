//! `cofferdam serve` as programs meet it: the real binary, over a socket.

mod actions;
mod audit;
mod browser;
mod changes;
mod confined;
mod connectors;
mod console;
mod console_limits;
mod ends;
mod fixture;
mod flood;
mod grant_requests;
mod health;
mod live;
mod network;
mod openapi;
mod outcomes;
mod partial_actions;
mod rejected;
mod schemathesis;
