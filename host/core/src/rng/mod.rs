//! Randomness as a dependency: code that draws random numbers takes a source of them, so that tests control
//! it and replays repeat it.

use std::sync::{Mutex, PoisonError};

/// A source of randomness. It decides only about waiting times, never about values that must be unguessable.
pub trait RandomSource: Send + Sync + 'static {
    /// Returns a uniformly distributed number from 0 to below 1.
    fn next_f64(&self) -> f64;
}

/// The process's own random source.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRng;

impl RandomSource for SystemRng {
    fn next_f64(&self) -> f64 {
        fastrand::f64()
    }
}

/// A random source that returns the same sequence for the same seed.
#[derive(Debug)]
pub struct SeededRng(Mutex<fastrand::Rng>);

impl SeededRng {
    /// Creates the sequence of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}

impl RandomSource for SeededRng {
    fn next_f64(&self) -> f64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }
}
