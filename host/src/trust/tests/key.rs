//! Keys: the published vectors, the weak and the misspelled, and that secrets stay secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{key, secret};
use crate::trust::{KeyId, PublicKey, SecretKey};

fn unhex(hex: &str) -> Vec<u8> {
    assert!(hex.is_ascii());
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn parse(bytes: &[u8]) -> Result<PublicKey, String> {
    PublicKey::parse(&format!("ed25519:{}", STANDARD.encode(bytes))).map_err(|error| error.to_string())
}

/// Seed, public key, message and signature of RFC 8032, section 7.1.
const RFC_8032: [[&str; 4]; 4] = [
    [
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b\
         d25bf5f0595bbe24655141438e7a100b",
    ],
    [
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c\
         387b2eaeb4302aeeb00d291612bb0c00",
    ],
    [
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659\
         4a7c15e9716ed28dc027beceea1ec40a",
    ],
    [
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd\
         454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e030\
         3dca179c138ac17ad9bef1177331a704",
    ],
];

#[test]
fn rfc_8032_vectors_hold_both_ways() {
    for [seed, public, message, signature] in RFC_8032 {
        let key = secret(&unhex(seed).try_into().unwrap());
        let public = parse(&unhex(public)).unwrap();
        let signature: [u8; 64] = unhex(signature).try_into().unwrap();
        assert_eq!(key.public(), public);
        assert_eq!(key.sign(&unhex(message)), signature);
        assert!(public.verifies(&unhex(message), &signature));
        assert!(!public.verifies(&[unhex(message), vec![0]].concat(), &signature));
    }
}

/// Project Wycheproof's vectors (github.com/C2SP/wycheproof, `ed25519_test.json`, Apache-2.0), as they are.
const WYCHEPROOF: &str = include_str!("wycheproof-ed25519.json");

#[test]
fn wycheproof_vectors_hold() {
    let set: serde_json::Value = serde_json::from_str(WYCHEPROOF).unwrap();
    let (mut accepted, mut rejected) = (0, 0);
    for group in set["testGroups"].as_array().unwrap() {
        let public = parse(&unhex(group["publicKey"]["pk"].as_str().unwrap())).unwrap();
        for test in group["tests"].as_array().unwrap() {
            let signature = <[u8; 64]>::try_from(unhex(test["sig"].as_str().unwrap()));
            let message = unhex(test["msg"].as_str().unwrap());
            let holds = signature.is_ok_and(|signature| public.verifies(&message, &signature));
            assert_eq!(holds, test["result"] == "valid", "{test}");
            *(if holds { &mut accepted } else { &mut rejected }) += 1;
        }
    }
    assert_eq!(Some(accepted + rejected), set["numberOfTests"].as_u64());
    assert!(accepted > 50 && rejected > 30, "{accepted} {rejected}");
}

#[test]
fn row_54_a_malleated_signature_is_refused() {
    let (key, message) = (key(7), b"message");
    let good = key.sign(message);
    // S + L, with L the order of the group, little-endian: the same equation, another encoding.
    let order = unhex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
    let mut malleated = good;
    let mut carry = 0u16;
    for (byte, addend) in malleated[32..].iter_mut().zip(order) {
        let sum = u16::from(*byte) + u16::from(addend) + carry;
        (*byte, carry) = (sum.to_le_bytes()[0], sum >> 8);
    }
    assert_eq!(carry, 0);
    assert!(key.public().verifies(message, &good));
    assert!(!key.public().verifies(message, &malleated));
}

#[test]
fn row_55_points_of_small_order_are_no_keys() {
    for hex in [
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    ] {
        let error = parse(&unhex(hex)).unwrap_err();
        assert!(error.contains("small order"), "{hex}: {error}");
    }
}

#[test]
fn row_56_other_encodings_of_a_point_are_no_keys() {
    for (hex, reason) in [
        // y = p + 1, p and p + 3, and x = 0 with its sign set.
        ("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "canonical"),
        ("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "canonical"),
        ("f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "canonical"),
        ("0100000000000000000000000000000000000000000000000000000000000080", "canonical"),
        // y = 2 is on no point.
        ("0200000000000000000000000000000000000000000000000000000000000000", "not a point"),
    ] {
        let error = parse(&unhex(hex)).unwrap_err();
        assert!(error.contains(reason), "{hex}: {error}");
    }
}

#[test]
fn texts_that_are_no_public_keys_are_refused_without_quoting_secrets() {
    let good = key(1).public().to_string();
    assert_eq!(PublicKey::parse(&good).unwrap(), key(1).public());
    for bad in ["", "ed25519:", "ed25519:AAAA", &good[8..], &good.replace("ed25519", "ed25519ph"), "rsa:AAAA"]
    {
        let error = PublicKey::parse(bad).unwrap_err();
        assert!(error.fix().contains("cofferdam key generate"), "{bad}: {error}");
    }
    let text = key(1).to_text();
    let line = text.lines().last().unwrap();
    let error = PublicKey::parse(line).unwrap_err().to_string();
    assert!(error.contains("secret key") && !error.contains(&line[30..]), "{error}");
}

#[test]
fn secret_keys_round_trip_and_never_show() {
    let (one, other) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
    assert_ne!(one.public(), other.public());
    let text = one.to_text();
    let secret = text.lines().last().unwrap().rsplit(':').next().unwrap();
    assert_eq!(SecretKey::parse(&text).unwrap().public(), one.public());
    assert_eq!(SecretKey::parse(&text.replace('\n', "\r\n")).unwrap().public(), one.public());
    assert!(text.contains(&one.public().to_string()));
    assert_eq!(format!("{one:?}"), format!("SecretKey(of public key {})", one.public().id()));
    for bad in [
        String::new(),
        "# nothing\n".to_owned(),
        one.public().to_string(),
        format!("{}x", text.trim_end()),
        text.trim_end()[..text.len() - 3].to_owned(),
        format!("{0}{0}", *text),
        text.replace("-key:ed25519", "-key:ed448"),
        secret.to_owned(),
        format!("cofferdam-secret-key:ed25519:{secret}{secret}"),
    ] {
        let error = format!("{0} {0:?}", SecretKey::parse(&bad).unwrap_err());
        assert!(!error.contains(&secret[..8]), "{error}");
        assert!(error.contains("cofferdam key generate"), "{error}");
    }
}

#[test]
fn ids_are_the_hash_of_the_key() {
    let id = key(0).public().id();
    // echo A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg= | base64 -d | sha256sum
    assert_eq!(id.to_string(), "56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c");
    assert_eq!(KeyId::parse(&id.to_string()), Some(id));
    for bad in ["", "56475a", &format!("sha256:{id}"), &id.to_string().to_uppercase()] {
        assert_eq!(KeyId::parse(bad), None, "{bad}");
    }
}
