//! The real binary is killed under load, at random instants and between any two steps, and what is left is judged.
//!
//! `COFFERDAM_KILLS=5000` kills so often instead of 200 times; `COFFERDAM_KILLS_SEED` chooses the instants.

mod cancelled;
mod decided;
mod disk;
mod judge;
mod points;
mod random;
mod stage;
mod writer;
