//! A few sessions that are used in turn.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::Client;

use super::{Database, DatabaseError, DatabaseErrorKind};

/// The maximum wait for a session that others use.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sessions of a database that are opened when they are needed, and kept. They belong to the runtime that they are opened
/// in. Cheap to clone.
#[derive(Clone)]
pub struct Pool {
    database: Database,
    idle: Arc<Mutex<Vec<Client>>>,
    places: Arc<Semaphore>,
}

impl Pool {
    /// Creates a pool with this many sessions at most.
    #[must_use]
    pub fn new(database: Database, sessions: usize) -> Self {
        Self { database, idle: Arc::default(), places: Arc::new(Semaphore::new(sessions)) }
    }

    /// Returns a session.
    ///
    /// # Errors
    /// The database cannot be used; `Busy`: all sessions are in use for too long.
    pub async fn get(&self) -> Result<PooledClient, DatabaseError> {
        let place = tokio::time::timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            let fix = "See what holds the database up, and call again.";
            return Err(DatabaseError::new(DatabaseErrorKind::Busy, "all its connections are in use", fix));
        };
        let idle = loop {
            let client = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match client {
                Some(client) if client.is_closed() => {}
                client => break client,
            }
        };
        let client = match idle {
            Some(client) => client,
            None => self.database.connect().await?,
        };
        Ok(PooledClient { client, idle: Arc::clone(&self.idle), _place: place })
    }
}

/// A session of a pool.
pub struct PooledClient {
    client: Client,
    idle: Arc<Mutex<Vec<Client>>>,
    _place: OwnedSemaphorePermit,
}

impl PooledClient {
    /// Returns the session.
    #[must_use]
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Returns the session to its pool. One that is dropped instead is closed: what was under way in it is not known.
    pub fn give_back(self) {
        let Self { client, idle, _place } = self;
        if !client.is_closed() {
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        }
    }
}
