//! Any text as a manifest, a keyring, a key, a scope and a connector's name.
#![no_main]

use cofferdam::ConnectorRef;
use cofferdam_model::manifest::Manifest;
use cofferdam_model::trust::{Keyring, PublicKey, SigningScope};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = Manifest::parse("connector.toml", text) {
        let _ = (error.to_string(), error.render(true));
    }
    if let Ok(keyring) = Keyring::parse("keyring.toml", text) {
        assert_eq!(Keyring::parse("keyring.toml", &keyring.to_text()).expect("what was written"), keyring);
    }
    let _ = (PublicKey::parse(text), SigningScope::parse(text), ConnectorRef::parse(text));
});
