//! `cofferdam serve` as programs meet it: the real binary, over a socket.

mod actions;
mod confined;
mod described;
mod ends;
mod flood;
mod foreign;
mod half_done;
mod outcomes;
mod refused;
mod stage;
