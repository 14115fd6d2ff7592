//! Databases that are refused, and those that are not, with a real PostgreSQL.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test")]

use cofferdam_egress::egress::{RootCertificates, Tls, default_tls, roots_from_pem};
use cofferdam_test_support::services::Postgres;
use tempfile::TempDir;

use super::*;

/// A home directory, and the database of a URL for it.
fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn database(url: &str, home: &TempDir) -> Database {
    let tls = default_tls([]).unwrap();
    Database::new(DatabaseSettings::parse(url, false).unwrap(), tls, home.path())
}

async fn refused(url: &str, home: &TempDir) -> DatabaseError {
    match database(url, home).connect().await {
        Ok(_) => panic!("{url} is not refused"),
        Err(error) => {
            assert!(!error.fix().is_empty() && !error.to_string().contains("secret"), "{error}");
            error
        }
    }
}

#[tokio::test]
async fn an_empty_database_gets_its_tables_once() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), home());
    let many: Vec<_> = (0..8)
        .map(|_| {
            let database = database(&url, &home);
            tokio::spawn(async move { database.connect().await.map(drop) })
        })
        .collect();
    for connected in many {
        connected.await.unwrap().unwrap();
    }
    let name = url.rsplit('/').next().unwrap();
    assert_eq!(postgres.psql(name, "SELECT count(*) FROM cofferdam.cluster"), "1");
    let client = database(&url, &home).connect().await.unwrap();
    let row = client.query_one("SHOW synchronous_commit", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "on");
}

#[tokio::test]
async fn a_database_of_another_program_is_refused() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), home());
    let name = url.rsplit('/').next().unwrap();
    postgres.psql(name, "CREATE TABLE public.customers (id int)");
    let error = refused(&url, &home).await;
    assert_eq!(error.kind(), DatabaseErrorKind::Foreign);
    assert!(error.to_string().contains("public.customers"), "{error}");
    assert!(!home.path().join("host.key").exists());
    assert_eq!(postgres.psql(name, "SELECT to_regnamespace('cofferdam') IS NULL"), "t");
}

#[tokio::test]
async fn tables_of_a_newer_version_are_refused() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), home());
    drop(database(&url, &home).connect().await.unwrap());
    postgres.psql(url.rsplit('/').next().unwrap(), "INSERT INTO cofferdam.migrations VALUES ('9999_future')");
    let error = refused(&url, &home).await;
    assert_eq!(error.kind(), DatabaseErrorKind::TooNew);
    assert!(error.to_string().contains("9999_future"), "{error}");
}

#[tokio::test]
async fn a_read_only_database_is_refused() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), home());
    drop(database(&url, &home).connect().await.unwrap());
    let name = url.rsplit('/').next().unwrap();
    postgres.psql(name, &format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    let error = refused(&url, &home).await;
    assert_eq!(error.kind(), DatabaseErrorKind::ReadOnly);
    assert!(error.may_pass());
}

#[tokio::test]
async fn a_superuser_is_refused() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), home());
    let name = url.rsplit('/').next().unwrap();
    let error = refused(&postgres.superuser_url(name), &home).await;
    assert_eq!(error.kind(), DatabaseErrorKind::Superuser);
    assert!(error.fix().contains("CREATE ROLE"), "{}", error.fix());
}

#[tokio::test]
async fn two_clusters_do_not_share_a_database() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, first, second) = (postgres.database(), home(), home());
    let opened = database(&url, &first);
    drop(opened.connect().await.unwrap());
    // A home without a key does not get one that would be of no use.
    assert_eq!(refused(&url, &second).await.kind(), DatabaseErrorKind::Key);
    assert!(!second.path().join("host.key").exists());
    cofferdam_core::host_key::load_or_create(&second.path().join("host.key")).unwrap();
    let error = refused(&url, &second).await;
    assert_eq!(error.kind(), DatabaseErrorKind::OtherCluster);
    assert!(error.to_string().contains(&opened.identity().unwrap().id()), "{error}");
    std::fs::copy(first.path().join("host.key"), second.path().join("host.key")).unwrap();
    drop(database(&url, &second).connect().await.unwrap());
    // Another database may take the place of one that is open.
    postgres.psql(url.rsplit('/').next().unwrap(), "UPDATE cofferdam.cluster SET identity = 'other'");
    assert_eq!(opened.connect().await.err().map(|it| it.kind()), Some(DatabaseErrorKind::OtherCluster));
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let home = home();
    let error = refused(&postgres.url("nowhere"), &home).await;
    assert_eq!(error.kind(), DatabaseErrorKind::Refused);
    let error = refused(&postgres.url_as("nobody_there", "postgres"), &home).await;
    assert_eq!(error.kind(), DatabaseErrorKind::Refused);
    let error = refused("postgres://cofferdam:secret@127.0.0.1:1/x", &home).await;
    assert_eq!(error.kind(), DatabaseErrorKind::Unreachable);
    assert!(error.to_string().contains("127.0.0.1:1/x") && error.may_pass(), "{error}");
}

#[tokio::test]
async fn a_password_is_needed_and_never_shown() {
    let Some(mut postgres) = Postgres::start_or_skip() else { return };
    let (url, home) = (postgres.database(), home());
    postgres.psql("postgres", "ALTER ROLE cofferdam PASSWORD 'hunter2 secret'");
    postgres.require_passwords();
    let error = refused(&url, &home).await;
    assert!(error.to_string().contains("asks for a password"), "{error}");
    let settings = DatabaseSettings::parse(&url, false).unwrap();
    let tls = default_tls([]).unwrap();
    let with = |password: &str| {
        let password = zeroize::Zeroizing::new(password.to_owned());
        Database::new(settings.clone().password(&password), Arc::clone(&tls), home.path())
    };
    let error = with("wrong secret").connect().await.err().unwrap();
    assert_eq!(error.kind(), DatabaseErrorKind::Refused);
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    drop(with("hunter2 secret").connect().await.unwrap());
    // Read for each connection, so that a new password needs no restart.
    let file = Arc::new(std::sync::Mutex::new("old secret".to_owned()));
    let source = Arc::clone(&file);
    let read = Arc::new(move || Ok(zeroize::Zeroizing::new(source.lock().unwrap().clone())));
    let rotated = Database::new(settings.clone().password_from(read), Arc::clone(&tls), home.path());
    assert!(rotated.connect().await.is_err());
    *file.lock().unwrap() = "hunter2 secret".to_owned();
    drop(rotated.connect().await.unwrap());
    postgres.stop();
    let error = with("hunter2 secret").connect().await.err().unwrap();
    assert_eq!(error.kind(), DatabaseErrorKind::Unreachable);
    postgres.start_again();
    drop(with("hunter2 secret").connect().await.unwrap());
}

#[tokio::test]
async fn tls_is_verified() {
    let Some(mut postgres) = Postgres::start_or_skip() else { return };
    let (url, home) = (postgres.database(), home());
    let url = format!("{}?sslmode=require", url.replace("127.0.0.1", "localhost"));
    let without = refused(&url, &home).await;
    assert!(without.to_string().contains("TLS"), "{without}");
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    postgres.speak_tls(&certificate.pem(), &key.serialize_pem());
    let untrusted = refused(&url, &home).await;
    assert_eq!(untrusted.kind(), DatabaseErrorKind::Unreachable, "{untrusted}");
    let roots = roots_from_pem(certificate.pem().as_bytes()).unwrap();
    let tls = Tls::new(RootCertificates::Bundled, roots).unwrap();
    let client = Database::new(DatabaseSettings::parse(&url, false).unwrap(), tls, home.path())
        .connect()
        .await
        .unwrap();
    let row =
        client.query_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[]).await.unwrap();
    assert!(row.get::<_, bool>(0));
}

#[tokio::test]
async fn sessions_are_used_in_turn() {
    let Some(postgres) = Postgres::shared_or_skip() else { return };
    let (url, home) = (postgres.database(), home());
    let pool = Pool::new(database(&url, &home), 2);
    let pid = async |session: &mut PooledClient| {
        session.client().query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get::<_, i32>(0)
    };
    let (mut first, mut second) = (pool.get().await.unwrap(), pool.get().await.unwrap());
    let first_pid = pid(&mut first).await;
    assert_ne!(first_pid, pid(&mut second).await);
    first.give_back();
    let mut third = pool.get().await.unwrap();
    assert_eq!(pid(&mut third).await, first_pid);
    // A session that the server ended is not given to anyone.
    postgres.psql("postgres", &format!("SELECT pg_terminate_backend({first_pid})"));
    tokio::time::sleep(Duration::from_millis(200)).await;
    third.give_back();
    drop(second);
    assert_ne!(pid(&mut pool.get().await.unwrap()).await, first_pid);
}
