//! Chance as a dependency: what draws lots takes a source of them, so that tests own it and replays repeat it.

use std::sync::{Mutex, PoisonError};

/// Where chance comes from. It decides how long to wait and nothing that anybody must not guess.
pub trait Chance: Send + Sync + 'static {
    /// A number from 0 to below 1, all equally likely.
    fn unit(&self) -> f64;
}

/// The process's own chance.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemChance;

impl Chance for SystemChance {
    fn unit(&self) -> f64 {
        fastrand::f64()
    }
}

/// The same numbers in the same order for the same seed.
#[derive(Debug)]
pub struct SeededChance(Mutex<fastrand::Rng>);

impl SeededChance {
    /// The sequence of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}

impl Chance for SeededChance {
    fn unit(&self) -> f64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }
}
