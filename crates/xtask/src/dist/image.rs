//! A container image as an OCI image layout in a tar archive, written without a daemon.
//!
//! Format: the OCI image specification 1.0 (`image-layout.md`, `manifest.md`, `config.md`, `layer.md`). Blobs are
//! named by their SHA-256. The image has one layer: the static binary and its configuration. It has no shell and
//! no certificates of authorities: a target with `https` needs `ca_file`, or the host's `/etc/ssl/certs` mounted.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};

use super::binary::Binary;
use super::content::Content;
use super::release::Release;
use super::sums::sha256;
use super::tree::Tree;
use crate::Outcome;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An image with one layer, for x86-64 Linux.
#[derive(Clone, Debug)]
pub struct Image {
    /// Name and version, as `wallscope:0.1.0`.
    pub name: String,
    /// Files of the layer.
    pub files: Tree,
    /// Command that a container runs.
    pub entry: Vec<String>,
    /// Its arguments, unless others are given.
    pub arguments: Vec<String>,
    /// Labels of the configuration.
    pub labels: Vec<(String, String)>,
    /// Time of the image and of all files, s since 1970.
    pub time: u64,
}

impl Image {
    /// The files of the image layout.
    ///
    /// # Errors
    /// A path that is too long for tar, or a time outside of the calendar.
    pub fn layout(&self) -> Outcome<Tree> {
        let mut tree = Tree::default();
        let layer = self.layer()?;
        let mut archive = Vec::new();
        self.files.tar(&mut archive, self.time)?;
        let config = self.config(&sha256(&archive))?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": blob(&mut tree, CONFIG, serde_json::to_vec(&config)?),
            "layers": [blob(&mut tree, LAYER, layer)],
        });
        let mut entry = blob(&mut tree, MANIFEST, serde_json::to_vec(&manifest)?);
        entry["platform"] = json!({"architecture": "amd64", "os": "linux"});
        let version = self.name.rsplit(':').next().unwrap_or_default();
        entry["annotations"] = json!({
            "org.opencontainers.image.ref.name": version,
            "io.containerd.image.name": format!("docker.io/library/{}", self.name),
        });
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});
        tree.data("index.json", serde_json::to_vec(&index)?);
        tree.data("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#);
        Ok(tree)
    }

    fn layer(&self) -> io::Result<Vec<u8>> {
        let mut out = GzBuilder::new().write(Vec::new(), Compression::best());
        self.files.tar(&mut out, self.time)?;
        out.finish()
    }

    fn config(&self, layer: &str) -> Outcome<Value> {
        let created = jiff::Timestamp::from_second(i64::try_from(self.time)?)?.to_string();
        let labels: serde_json::Map<String, Value> = (self.labels.iter())
            .map(|(key, value)| (key.clone(), json!(value)))
            .collect();
        Ok(json!({
            "architecture": "amd64",
            "os": "linux",
            "created": created,
            "config": {
                "Entrypoint": self.entry,
                "Cmd": self.arguments,
                "Env": ["PATH=/usr/bin"],
                "WorkingDir": "/",
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
            "history": [{"created": created, "created_by": "cargo xtask dist"}],
        }))
    }
}

/// Adds a blob; its descriptor.
fn blob(tree: &mut Tree, kind: &str, content: Vec<u8>) -> Value {
    let (digest, size) = (sha256(&content), content.len());
    tree.data(format!("blobs/sha256/{digest}"), content);
    json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": size})
}

/// Writes the image of the static binary into `folder`; its path.
///
/// # Errors
/// Those of the file system.
pub(super) fn package(
    binary: &Binary,
    content: &Content,
    release: &Release,
    folder: &Path,
) -> Outcome<PathBuf> {
    let mut files = Tree::default();
    files.program("usr/bin/wallscope", binary.content.as_slice());
    files.data("etc/wallscope/agent.toml", content.config.as_slice());
    let licences = [
        ("NOTICE", content.notice.as_slice()),
        ("LICENSE-MIT", content.mit.as_bytes()),
        ("LICENSE-APACHE", content.apache.as_slice()),
        ("LICENSE-GPL-2.0", content.gpl.as_slice()),
    ];
    for (name, text) in licences {
        files.data(format!("usr/share/licenses/wallscope/{name}"), text);
    }
    let label = |name: &str, value: &str| {
        let name = format!("org.opencontainers.image.{name}");
        (name, value.to_owned())
    };
    let image = Image {
        name: format!("wallscope:{}", release.version),
        files,
        entry: vec!["/usr/bin/wallscope".into()],
        arguments: vec!["agent".into()],
        labels: vec![
            label("title", "wallscope"),
            label("version", release.version),
            label("licenses", "MIT OR Apache-2.0"),
            label("source", env!("CARGO_PKG_REPOSITORY")),
        ],
        time: release.time,
    };
    let path = folder.join(format!("wallscope-{}-oci.tar", release.version));
    let mut file = File::create(&path)?;
    image.layout()?.tar(&mut file, release.time)?;
    file.flush()?;
    Ok(path)
}
