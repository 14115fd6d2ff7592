//! Publishing: a package, then its signature, then the tag, so that no tag ever leads to an unsigned package.

use std::collections::BTreeMap;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::trust::ENVELOPE_BYTES;
use oci_client::manifest::{
    ImageIndexEntry, OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciImageIndex,
};
use oci_client::{Reference, RegistryOperation};

use crate::artifact::{Artifact, package_layer};
use crate::client::DistributionClient;
use crate::error;
use crate::reference::RegistryRef;
use crate::registry::{DOCUMENT_BYTES, RepositorySession, referrers_tag};

/// The most times that a list of referrers is put, if other clients replace it at the same time.
const LIST_ATTEMPTS: usize = 5;

/// The names of a component's imports and exports, for other tools.
#[derive(Debug, Clone, Default)]
pub struct ComponentInterface {
    /// The imports.
    pub imports: Vec<String>,
    /// The exports.
    pub exports: Vec<String>,
}

/// A package to publish.
#[derive(Debug, Clone)]
pub struct Publication {
    /// The package.
    pub package: Vec<u8>,
    /// The name of its file, for tools that pull files.
    pub file_name: String,
    /// Its signature, a DSSE envelope.
    pub signature: Option<Vec<u8>>,
    /// The names of its imports and exports.
    pub interface: ComponentInterface,
    /// The annotations of the artifact, which people and other tools read and this host does not.
    pub annotations: BTreeMap<String, String>,
}

/// The result of publishing.
#[derive(Debug, Clone)]
pub struct Published {
    /// The reference with the digest of the manifest.
    pub pinned: RegistryRef,
    /// The digest of the package.
    pub digest: Digest,
    /// True if the tag led to this package before.
    pub already_published: bool,
    /// True if the signature was attached before, or there is none.
    pub already_signed: bool,
    /// The manifest that the tag led to before, if it was another.
    pub moved_from: Option<Digest>,
}

impl DistributionClient {
    /// Publishes a package under the tag of `reference`. Publishing the same package again changes nothing, except that a
    /// signature that is not there yet is attached. With `moves_tag`, a tag of another package is moved.
    ///
    /// # Errors
    /// `validation` if the reference has no tag or has a digest, or the signature is too long; `conflict` if the tag
    /// leads to another package, or was moved meanwhile; else as [`fetch`](Self::fetch).
    pub async fn publish(
        &self,
        reference: &RegistryRef,
        publication: Publication,
        moves_tag: bool,
    ) -> Result<Published, HostError> {
        let tag = reference.tag().filter(|_| reference.digest().is_none()).ok_or_else(|| {
            let message = format!("{reference} cannot be published to: it must have a tag and no digest.");
            HostError::new(HostErrorKind::Validation, message)
                .with_hint("Write it like oci://registry.example/acme/slack:1.2.0.")
        })?;
        if publication.signature.as_ref().is_some_and(|envelope| envelope.len() > ENVELOPE_BYTES) {
            let message = format!("The signature has more than {ENVELOPE_BYTES} bytes.");
            return Err(HostError::new(HostErrorKind::Validation, message)
                .with_hint("Sign it with fewer keys, or with a smaller provenance."));
        }
        self.in_time(reference, async {
            let session = RepositorySession::open(&self.settings, reference, RegistryOperation::Push).await?;
            session.publish(tag, publication, moves_tag).await
        })
        .await
    }
}

impl RepositorySession {
    async fn publish(
        &self,
        tag: &str,
        publication: Publication,
        moves_tag: bool,
    ) -> Result<Published, HostError> {
        let Publication { package, file_name, signature, interface, annotations } = publication;
        let digest = Digest::sha256(&package);
        let broken = |error| error::internal("The artifact cannot be written as JSON.", error);
        let interface = (&*interface.imports, &*interface.exports);
        let artifact = Artifact::package(package, &file_name, interface, annotations);
        let artifact = artifact.map_err(broken)?;
        let there = self.find_manifest(&self.image()).await?;
        let has_package = |manifest: &[u8]| package_layer(manifest).is_ok_and(|layer| layer.digest == digest);
        let same = there.as_ref().filter(|manifest| has_package(manifest));
        let previous = there.as_ref().map(|manifest| Digest::sha256(manifest));
        if let (Some(previous), None, false) = (previous, same, moves_tag) {
            return Err(taken(&self.reference, &previous));
        }
        // A manifest with the same package that another tool pushed stays as it is.
        let (manifest, size) = match same {
            Some(manifest) => (Digest::sha256(manifest), manifest.len()),
            None => {
                self.push(&artifact).await?;
                (artifact.digest(), artifact.manifest.len())
            }
        };
        let already_signed = match signature {
            None => true,
            Some(envelope) => {
                self.attach(&Artifact::signature(envelope, &manifest, size).map_err(broken)?, &manifest)
                    .await?
            }
        };
        let current = async || {
            let manifest = self.find_manifest(&self.image()).await?;
            Ok::<_, HostError>(manifest.map(|manifest| Digest::sha256(&manifest)))
        };
        if same.is_none() {
            // The upload may have taken minutes, and registries cannot compare and move a tag in one step: look as late
            // as possible.
            if current().await? != previous {
                return Err(moved_meanwhile(&self.reference));
            }
            self.put_manifest(tag, artifact.manifest.clone(), OCI_IMAGE_MEDIA_TYPE).await?;
        }
        if current().await? != Some(manifest) {
            return Err(moved_meanwhile(&self.reference));
        }
        Ok(Published {
            pinned: self.reference.clone().with_digest(manifest),
            digest,
            already_published: same.is_some(),
            already_signed,
            moved_from: previous.filter(|previous| *previous != manifest),
        })
    }

    /// Pushes the trust of a cluster, and moves the tag to it.
    pub(crate) async fn publish_trust(&self, tag: &str, bundle: Vec<u8>) -> Result<Digest, HostError> {
        let broken = |error| error::internal("The artifact cannot be written as JSON.", error);
        let artifact = Artifact::trust(bundle).map_err(broken)?;
        self.push(&artifact).await?;
        self.put_manifest(tag, artifact.manifest.clone(), OCI_IMAGE_MEDIA_TYPE).await?;
        let current = self.find_manifest(&self.image()).await?.map(|manifest| Digest::sha256(&manifest));
        match current == Some(artifact.digest()) {
            true => Ok(artifact.digest()),
            false => Err(moved_meanwhile(&self.reference)),
        }
    }

    /// Pushes the blobs of an artifact that are not there yet, and its manifest, under no tag.
    async fn push(&self, artifact: &Artifact) -> Result<(), HostError> {
        let image = self.image();
        for blob in &artifact.blobs {
            let digest = format!("sha256:{}", Digest::sha256(blob));
            if !self.step(DOCUMENT_BYTES, self.client.blob_exists(&image, &digest)).await? {
                self.step(DOCUMENT_BYTES, self.client.push_blob(&image, blob.clone(), &digest)).await?;
            }
        }
        let digest = format!("sha256:{}", artifact.digest());
        self.put_manifest(&digest, artifact.manifest.clone(), OCI_IMAGE_MEDIA_TYPE).await
    }

    /// Puts a manifest under a tag or its digest. The client takes both as a tag; given a digest, it would panic on
    /// registries that answer without a location.
    async fn put_manifest(
        &self,
        name: &str,
        manifest: Vec<u8>,
        media_type: &'static str,
    ) -> Result<(), HostError> {
        let media_type = http::HeaderValue::from_static(media_type);
        let image = self.named(name);
        let put = self.client.push_manifest_raw(&image, manifest, media_type);
        self.step(DOCUMENT_BYTES, put).await.map(drop)
    }

    fn named(&self, name: &str) -> Reference {
        let (registry, repository) = (self.reference.registry(), self.reference.repository().to_owned());
        Reference::with_tag(registry, repository, name.to_owned())
    }

    /// Attaches a signature to the manifest `subject`. Returns true if it was attached before.
    async fn attach(&self, signature: &Artifact, subject: &Digest) -> Result<bool, HostError> {
        let is_listed = async || {
            let listed = self.signature_manifests(subject).await?;
            Ok::<_, HostError>(listed.contains(&signature.digest()))
        };
        if is_listed().await? {
            return Ok(true);
        }
        self.push(signature).await?;
        if is_listed().await? {
            return Ok(false);
        }
        let is_kept = self.list_referrer(signature.index_entry(), &referrers_tag(subject)).await?;
        match is_kept && is_listed().await? {
            true => Ok(false),
            false => Err(error::unavailable(
                format!(
                    "The registry does not list the signature of {}, or earlier ones, after it was pushed.",
                    self.reference
                ),
                "Publish again; if that does not help, the registry keeps no signatures.",
            )),
        }
    }

    /// Adds an entry to the list of referrers under `tag`, as clients do on registries without the referrers API. If
    /// another client replaced the list at the same time, the entries of both are put again. Returns whether the list
    /// has all of them in the end.
    async fn list_referrer(&self, entry: ImageIndexEntry, tag: &str) -> Result<bool, HostError> {
        let mut wanted = vec![entry];
        for _ in 0..LIST_ATTEMPTS {
            let mut index = self.referrers(tag).await?;
            let is_missing = |entry: &&ImageIndexEntry| {
                !index.manifests.iter().any(|listed| listed.digest == entry.digest)
            };
            let missing: Vec<_> = wanted.iter().filter(is_missing).cloned().collect();
            if missing.is_empty() {
                return Ok(true);
            }
            index.manifests.extend(missing);
            wanted.clone_from(&index.manifests);
            let index = serde_json::to_vec(&index).map_err(|error| {
                error::internal("The list of referrers cannot be written as JSON.", error)
            })?;
            self.put_manifest(tag, index, OCI_IMAGE_INDEX_MEDIA_TYPE).await?;
        }
        Ok(false)
    }

    /// Returns the list of referrers under `tag`; an empty one if there is none.
    async fn referrers(&self, tag: &str) -> Result<OciImageIndex, HostError> {
        let Some(index) = self.find_manifest(&self.named(tag)).await? else {
            return Ok(OciImageIndex {
                schema_version: 2,
                media_type: Some(OCI_IMAGE_INDEX_MEDIA_TYPE.to_owned()),
                manifests: Vec::new(),
                artifact_type: None,
                annotations: None,
            });
        };
        serde_json::from_slice(&index).map_err(|error| {
            let message = format!("The tag {tag} of {} is not a list of referrers.", self.reference);
            error::refused(message, "Remove the tag, and publish again.").with_source(error)
        })
    }
}

/// Returns the error for a tag that another publisher moved in the meantime.
fn moved_meanwhile(reference: &RegistryRef) -> HostError {
    let message = format!("{reference} does not lead to the published package: its tag was moved meanwhile.");
    HostError::new(HostErrorKind::Conflict, message)
        .with_hint("Another publisher may have moved it at the same time: look, and publish again.")
}

/// Returns the error for a tag that leads to another package.
fn taken(reference: &RegistryRef, previous: &Digest) -> HostError {
    let message = format!("{reference} is another package already (manifest sha256:{previous}).");
    HostError::new(HostErrorKind::Conflict, message)
        .with_hint("Publish a new version under a new tag, or pass --move-tag to move this one.")
}
