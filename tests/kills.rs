//! The real binary is killed under load, at random instants and between any two steps, and what is left is judged.
//!
//! `COFFERDAM_KILLS=5000` kills so often instead of 100 times; `COFFERDAM_KILLS_SEED` chooses the instants.
//! `COFFERDAM_FULL_DISK_SECONDS=3600` calls a server on a full disk for an hour instead of 20 seconds.

mod cancelled_resume;
mod checker;
mod fixture;
mod full_disk;
mod kill_points;
mod random;
mod resolution;
mod writer;
