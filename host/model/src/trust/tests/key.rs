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

/// Message, key and signature of the cases in "Taming the many EdDSAs" (ePrint 2020/1244), in order, which
/// libraries disagree about; and the reason why each is rejected here, where no key, nonce or scalar has two
/// encodings.
const DISPUTED: [[&str; 4]; 10] = [
    [
        "8c93255d71dcab10e8f379c26200f3c7bd5f09d9bc3068d3ef4edeb4853022b6",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a\
         0000000000000000000000000000000000000000000000000000000000000000",
        "a key of small order",
    ],
    [
        "9bd9f44f4dcc75bd531b56b2cd280b0bb38fc1cd6d1230e14861d861de092e79",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "f7badec5b8abeaf699583992219b7b223f1df3fbbea919844e3f7c554a43dd43\
         a5bb704786be79fc476f91d3f3f89b03984d8068dcf1bb7dfc6637b45450ac04",
        "a key of small order",
    ],
    [
        "aebf3f2601a0c8c5d39cc7d8911642f740b78168218da8471772b35f9d35b9ab",
        "f7badec5b8abeaf699583992219b7b223f1df3fbbea919844e3f7c554a43dd43",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa\
         8c4bd45aecaca5b24fb97bc10ac27ac8751a7dfe1baff8b953ec9f5833ca260e",
        "a nonce of small order",
    ],
    [
        "9bd9f44f4dcc75bd531b56b2cd280b0bb38fc1cd6d1230e14861d861de092e79",
        "cdb267ce40c5cd45306fa5d2f29731459387dbf9eb933b7bd5aed9a765b88d4d",
        "9046a64750444938de19f227bb80485e92b83fdb4b6506c160484c016cc1852f\
         87909e14428a7a1d62e9f22f3d3ad7802db02eb2e688b6c52fcd6648a98bd009",
        "",
    ],
    [
        "e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec4011eaccd55b53f56c",
        "cdb267ce40c5cd45306fa5d2f29731459387dbf9eb933b7bd5aed9a765b88d4d",
        "160a1cb0dc9c0258cd0a7d23e94d8fa878bcb1925f2c64246b2dee1796bed512\
         5ec6bc982a269b723e0668e540911a9a6a58921d6925e434ab10aa7940551a09",
        "good only times the cofactor",
    ],
    [
        "e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec4011eaccd55b53f56c",
        "cdb267ce40c5cd45306fa5d2f29731459387dbf9eb933b7bd5aed9a765b88d4d",
        "21122a84e0b5fca4052f5b1235c80a537878b38f3142356b2c2384ebad4668b7\
         e40bc836dac0f71076f9abe3a53f9c03c1ceeeddb658d0030494ace586687405",
        "good only times the cofactor",
    ],
    [
        "85e241a07d148b41e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec40",
        "442aad9f089ad9e14647b1ef9099a1ff4798d78589e66f28eca69c11f582a623",
        "e96f66be976d82e60150baecff9906684aebb1ef181f67a7189ac78ea23b6c0e\
         547f7690a0e2ddcd04d87dbc3490dc19b3b3052f7ff0538cb68afb369ba3a514",
        "a scalar above the order",
    ],
    [
        "85e241a07d148b41e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec40",
        "442aad9f089ad9e14647b1ef9099a1ff4798d78589e66f28eca69c11f582a623",
        "8ce5b96c8f26d0ab6c47958c9e68b937104cd36e13c33566acd2fe8d38aa1942\
         7e71f98a473474f2f13f06f97c20d58cc3f54b8bd0d272f42b695dd7e89a8c22",
        "a scalar above the order",
    ],
    [
        "fdaebc429f4a735932a160da1301080c13280eea8bc280d1b392c6b9e6ba3a5a",
        "f7badec5b8abeaf699583992219b7b223f1df3fbbea919844e3f7c554a43dd43",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f\
         454d370c8d9fc323a41450f8d513eafeb5b0697390c1e505a0d4ddc71f566607",
        "a nonce in another encoding",
    ],
    [
        "84b698d39be126ff55fe45079e6c8bf64a0d7db6994560b4e96b7021eb39c1a1",
        "f7badec5b8abeaf699583992219b7b223f1df3fbbea919844e3f7c554a43dd43",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f\
         084d5b99c2a9463d9c8bd5026916996984eeec87ddf1d3be329006ace1b37b09",
        "a nonce in another encoding",
    ],
];

#[test]
fn disputed_signatures_are_decided_strictly() {
    for [message, public, signature, fault] in DISPUTED {
        let signature: [u8; 64] = unhex(signature).try_into().unwrap();
        let holds = parse(&unhex(public)).map(|public| public.verifies(&unhex(message), &signature));
        match fault {
            "" => assert_eq!(holds, Ok(true)),
            "a key of small order" => assert!(holds.unwrap_err().contains("small order")),
            fault => assert_eq!(holds, Ok(false), "{fault}"),
        }
    }
}

#[test]
fn a_malleated_signature_is_refused() {
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
fn points_of_small_order_are_refused() {
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
fn noncanonical_point_encodings_are_refused() {
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
fn invalid_public_keys_are_refused_without_secrets() {
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
fn secret_keys_round_trip_and_are_not_shown() {
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
