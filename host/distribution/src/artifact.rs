//! The kinds of artifacts: a package, a signature that refers to one, and the key set of a publisher.
//!
//! A package is a Wasm OCI artifact as the CNCF's guidance has it: the config of its media type, and exactly one layer
//! with the component, so that the layer's digest is the package's identity. A signature is an OCI 1.1 artifact whose
//! `subject` is the package's manifest, and whose one layer is a DSSE envelope. A key set is the one layer of an artifact
//! of any type; the media type of the layer says that it is one.

use std::collections::BTreeMap;

use cofferdam_core::digest::Digest;
use cofferdam_core::failure::sanitize_line;
use cofferdam_model::package;
use cofferdam_model::trust::{ENVELOPE_BYTES, KEY_SET_BYTES, TRUST_BUNDLE_BYTES};
use oci_client::manifest::{
    ImageIndexEntry, OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest,
};
use serde::{Deserialize, Serialize};

/// The media type of a package's config.
const WASM_CONFIG: &str = "application/vnd.wasm.config.v0+json";

/// The media type of a package's layer.
const WASM_LAYER: &str = "application/wasm";

/// The type of a signature's artifact, and the media type of its layer.
pub(crate) const SIGNATURE_TYPE: &str = "application/vnd.dsse.envelope.v1+json";

/// The media type of a key set's layer.
pub(crate) const KEY_SET_LAYER: &str = "application/vnd.cofferdam.key-set.v1+json";

/// The type of the artifact with the trust of a cluster, and the media type of its layer.
pub(crate) const TRUST_TYPE: &str = "application/vnd.cofferdam.trust.v1+json";

/// The config of an artifact that needs none, and its media type.
const EMPTY_CONFIG: &[u8] = b"{}";
const EMPTY_CONFIG_TYPE: &str = "application/vnd.oci.empty.v1+json";

/// The annotation with the file name of a layer.
const TITLE: &str = "org.opencontainers.image.title";

/// The longest signature, in bytes.
pub(crate) const SIGNATURE_BYTES: u64 = ENVELOPE_BYTES as u64;

/// A blob of a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobDescriptor {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

/// The parts of a manifest that decide its kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestKind {
    schema_version: u32,
    media_type: Option<String>,
    #[serde(default)]
    manifests: Option<serde::de::IgnoredAny>,
}

/// Returns the layer of a package. Fails with the end of a sentence about the manifest.
pub(crate) fn package_layer(manifest: &[u8]) -> Result<BlobDescriptor, String> {
    let manifest = image_manifest(manifest)?;
    if manifest.config.media_type != WASM_CONFIG {
        return Err(format!(
            "its config is of the type {}, not {WASM_CONFIG}",
            quoted(&manifest.config.media_type)
        ));
    }
    let layer = only_layer(&manifest, WASM_LAYER)?;
    if layer.size > package::MAX_BYTES {
        return Err(format!(
            "its layer has {} bytes; a package has at most {}",
            layer.size,
            package::MAX_BYTES
        ));
    }
    Ok(layer)
}

/// Returns the layer of a signature about the manifest `subject`.
pub(crate) fn signature_layer(manifest: &[u8], subject: &Digest) -> Result<BlobDescriptor, String> {
    let manifest = image_manifest(manifest)?;
    if manifest.artifact_type.as_deref() != Some(SIGNATURE_TYPE) {
        return Err(format!("it is not of the type {SIGNATURE_TYPE}"));
    }
    let about = manifest.subject.as_ref().and_then(|subject| digest(&subject.digest));
    if about != Some(*subject) {
        return Err("its subject is another artifact".to_owned());
    }
    let layer = only_layer(&manifest, SIGNATURE_TYPE)?;
    match layer.size <= SIGNATURE_BYTES {
        true => Ok(layer),
        false => Err(format!("its signature has {} bytes; one has at most {SIGNATURE_BYTES}", layer.size)),
    }
}

/// Returns the layer of a key set. Fails with the end of a sentence about the manifest.
pub(crate) fn key_set_layer(manifest: &[u8]) -> Result<BlobDescriptor, String> {
    let layer = only_layer(&image_manifest(manifest)?, KEY_SET_LAYER)?;
    match layer.size <= KEY_SET_BYTES as u64 {
        true => Ok(layer),
        false => Err(format!("its layer has {} bytes; a key set has at most {KEY_SET_BYTES}", layer.size)),
    }
}

/// Returns the layer with the trust of a cluster. Fails with the end of a sentence about the manifest.
pub(crate) fn trust_layer(manifest: &[u8]) -> Result<BlobDescriptor, String> {
    let layer = only_layer(&image_manifest(manifest)?, TRUST_TYPE)?;
    match layer.size <= TRUST_BUNDLE_BYTES as u64 {
        true => Ok(layer),
        false => Err(format!("its layer has {} bytes; one has at most {TRUST_BUNDLE_BYTES}", layer.size)),
    }
}

fn image_manifest(bytes: &[u8]) -> Result<OciImageManifest, String> {
    let broken =
        |error: serde_json::Error| format!("it cannot be read ({})", sanitize_line(&error.to_string(), 200));
    let kind: ManifestKind = serde_json::from_slice(bytes).map_err(broken)?;
    let media_type = kind.media_type.as_deref().unwrap_or(OCI_IMAGE_MEDIA_TYPE);
    let is_list = media_type == OCI_IMAGE_INDEX_MEDIA_TYPE || media_type.contains("manifest.list");
    if is_list || kind.manifests.is_some() {
        return Err("it is a list of manifests for several platforms, and one manifest is needed".to_owned());
    }
    if kind.schema_version != 2 || media_type != OCI_IMAGE_MEDIA_TYPE {
        return Err(format!("it is of the type {}, not {OCI_IMAGE_MEDIA_TYPE}", quoted(media_type)));
    }
    serde_json::from_slice(bytes).map_err(broken)
}

fn only_layer(manifest: &OciImageManifest, media_type: &str) -> Result<BlobDescriptor, String> {
    let [layer] = &*manifest.layers else {
        return Err(format!("it has {} layers, not one", manifest.layers.len()));
    };
    if layer.media_type != media_type {
        return Err(format!("its layer is of the type {}, not {media_type}", quoted(&layer.media_type)));
    }
    let size = u64::try_from(layer.size).map_err(|_| "the size of its layer is negative")?;
    let digest = digest(&layer.digest).ok_or("the digest of its layer is not a SHA-256")?;
    Ok(BlobDescriptor { digest, size })
}

/// Parses a digest in the form of registries.
pub(crate) fn digest(text: &str) -> Option<Digest> {
    text.strip_prefix("sha256:").and_then(Digest::parse)
}

fn quoted(text: &str) -> String {
    format!("`{}`", sanitize_line(text, 100))
}

/// An artifact to push: its blobs and its manifest.
pub(crate) struct Artifact {
    pub(crate) blobs: Vec<Vec<u8>>,
    pub(crate) manifest: Vec<u8>,
    kind: Option<String>,
}

/// The config of a package's artifact.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WasmConfig<'a> {
    created: &'static str,
    architecture: &'static str,
    os: &'static str,
    layer_digests: [String; 1],
    component: WasmComponent<'a>,
}

#[derive(Serialize)]
struct WasmComponent<'a> {
    exports: &'a [String],
    imports: &'a [String],
}

impl Artifact {
    /// Returns the artifact of a package.
    pub(crate) fn package(
        bytes: Vec<u8>,
        file_name: &str,
        (imports, exports): (&[String], &[String]),
        annotations: BTreeMap<String, String>,
    ) -> serde_json::Result<Self> {
        let config = serde_json::to_vec(&WasmConfig {
            // The guidance wants a time. A fixed one makes the artifact of the same package the same each time.
            created: "1970-01-01T00:00:00Z",
            architecture: "wasm",
            os: "wasip2",
            layer_digests: [format!("sha256:{}", Digest::sha256(&bytes))],
            component: WasmComponent { exports, imports },
        })?;
        // Generic tools write a layer to the file of its title, and skip those without one.
        let title = BTreeMap::from([(TITLE.to_owned(), file_name.to_owned())]);
        let layer = OciDescriptor { annotations: Some(title), ..descriptor(WASM_LAYER, &bytes) };
        let manifest = OciImageManifest {
            media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
            config: descriptor(WASM_CONFIG, &config),
            layers: vec![layer],
            annotations: (!annotations.is_empty()).then_some(annotations),
            ..OciImageManifest::default()
        };
        Ok(Self { blobs: vec![bytes, config], manifest: serde_json::to_vec(&manifest)?, kind: None })
    }

    /// Returns the artifact of a signature about the manifest `subject`, which has `size` bytes.
    pub(crate) fn signature(envelope: Vec<u8>, subject: &Digest, size: usize) -> serde_json::Result<Self> {
        let manifest = OciImageManifest {
            media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
            config: descriptor(EMPTY_CONFIG_TYPE, EMPTY_CONFIG),
            layers: vec![descriptor(SIGNATURE_TYPE, &envelope)],
            subject: Some(OciDescriptor {
                media_type: OCI_IMAGE_MEDIA_TYPE.to_owned(),
                digest: format!("sha256:{subject}"),
                size: i64::try_from(size).unwrap_or(i64::MAX),
                ..OciDescriptor::default()
            }),
            artifact_type: Some(SIGNATURE_TYPE.to_owned()),
            ..OciImageManifest::default()
        };
        Ok(Self {
            blobs: vec![envelope, EMPTY_CONFIG.to_vec()],
            manifest: serde_json::to_vec(&manifest)?,
            kind: Some(SIGNATURE_TYPE.to_owned()),
        })
    }

    /// Returns the artifact with the trust of a cluster.
    pub(crate) fn trust(bundle: Vec<u8>) -> serde_json::Result<Self> {
        let manifest = OciImageManifest {
            media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
            config: descriptor(EMPTY_CONFIG_TYPE, EMPTY_CONFIG),
            layers: vec![descriptor(TRUST_TYPE, &bundle)],
            artifact_type: Some(TRUST_TYPE.to_owned()),
            ..OciImageManifest::default()
        };
        Ok(Self {
            blobs: vec![bundle, EMPTY_CONFIG.to_vec()],
            manifest: serde_json::to_vec(&manifest)?,
            kind: Some(TRUST_TYPE.to_owned()),
        })
    }

    /// Returns the digest of the manifest.
    pub(crate) fn digest(&self) -> Digest {
        Digest::sha256(&self.manifest)
    }

    /// Returns the entry of an index for this artifact.
    pub(crate) fn index_entry(&self) -> ImageIndexEntry {
        ImageIndexEntry {
            media_type: OCI_IMAGE_MEDIA_TYPE.to_owned(),
            digest: format!("sha256:{}", self.digest()),
            size: i64::try_from(self.manifest.len()).unwrap_or(i64::MAX),
            platform: None,
            annotations: None,
            artifact_type: self.kind.clone(),
        }
    }
}

fn descriptor(media_type: &str, bytes: &[u8]) -> OciDescriptor {
    OciDescriptor {
        media_type: media_type.to_owned(),
        digest: format!("sha256:{}", Digest::sha256(bytes)),
        size: i64::try_from(bytes.len()).unwrap_or(i64::MAX),
        ..OciDescriptor::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn artifacts_are_read_as_they_are_made() {
        let imports = ["wasi:cli/environment@0.2.6".to_owned()];
        let artifact =
            Artifact::package(b"wasm".to_vec(), "a.wasm", (&imports, &[]), BTreeMap::new()).unwrap();
        let layer = package_layer(&artifact.manifest).unwrap();
        assert_eq!(layer, BlobDescriptor { digest: Digest::sha256(b"wasm"), size: 4 });
        let again = Artifact::package(b"wasm".to_vec(), "a.wasm", (&imports, &[]), BTreeMap::new()).unwrap();
        assert_eq!(again.digest(), artifact.digest());
        let (subject, size) = (artifact.digest(), artifact.manifest.len());
        let signature = Artifact::signature(b"{}\n".to_vec(), &subject, size).unwrap();
        assert_eq!(signature_layer(&signature.manifest, &subject).unwrap().size, 3);
        let other = Digest::sha256(b"other");
        assert!(signature_layer(&signature.manifest, &other).unwrap_err().contains("another artifact"));
        assert!(package_layer(&signature.manifest).unwrap_err().contains("its config"));
        assert!(signature_layer(&artifact.manifest, &subject).unwrap_err().contains("not of the type"));
    }

    #[test]
    fn other_manifests_are_refused_with_a_reason() {
        let artifact = Artifact::package(b"wasm".to_vec(), "a.wasm", (&[], &[]), BTreeMap::new()).unwrap();
        let good = String::from_utf8(artifact.manifest).unwrap();
        let layers = good.split("\"layers\":").nth(1).unwrap();
        let layer = layers.trim_start_matches('[').split(']').next().unwrap();
        let digest = format!("sha256:{}", Digest::sha256(b"wasm"));
        for (from, to, reason) in [
            (layer, format!("{layer},{layer}"), "2 layers"),
            (layer, String::new(), "0 layers"),
            (WASM_LAYER, "application/vnd.oci.image.layer.v1.tar+gzip".to_owned(), "tar+gzip"),
            (WASM_CONFIG, "application/vnd.oci.image.config.v1+json".to_owned(), "its config"),
            (&digest, "sha512:00".to_owned(), "not a SHA-256"),
            ("\"size\":4", "\"size\":-4".to_owned(), "negative"),
            ("\"size\":4", "\"size\":999999999999".to_owned(), "at most"),
            (OCI_IMAGE_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE.to_owned(), "a list of manifests"),
            ("\"schemaVersion\":2", "\"schemaVersion\":2,\"manifests\":[]".to_owned(), "a list of manifests"),
            ("\"schemaVersion\":2", "\"schemaVersion\":1".to_owned(), "it is of the type"),
            ("{", "[".to_owned(), "cannot be read"),
        ] {
            let changed = good.replacen(from, &to, 1);
            assert_ne!(changed, good, "{from}");
            let error = package_layer(changed.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{from} -> {to}: {error}");
        }
    }
}
