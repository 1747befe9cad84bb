//! The container image that `cargo xtask dist` writes can be read back: each digest, size and file.

use std::collections::BTreeMap;
use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::Value;
use xtask::dist::image::Image;
use xtask::dist::sums::sha256;
use xtask::dist::tree::Tree;

fn image() -> Image {
    let mut files = Tree::default();
    files.program("usr/bin/wallscope", [0x7f, b'E', b'L', b'F'].repeat(5000));
    files.data("etc/wallscope/agent.toml", "[agent]\n");
    files.data(format!("usr/share/{}/empty", "long/".repeat(24)), "");
    Image {
        name: "wallscope:9.8.7".into(),
        files,
        entry: vec!["/usr/bin/wallscope".into()],
        arguments: vec!["agent".into()],
        labels: vec![("org.opencontainers.image.version".into(), "9.8.7".into())],
        time: 1_000_000_000,
    }
}

/// A layout as a reader has it: blobs by digest.
struct Layout(BTreeMap<String, Vec<u8>>);

impl Layout {
    /// Writes the layout of an image as a tar archive, and reads that.
    fn of(image: &Image) -> Layout {
        let mut archive = Vec::new();
        image
            .layout()
            .unwrap()
            .tar(&mut archive, image.time)
            .unwrap();
        let read = Tree::read_tar(archive.as_slice()).unwrap();
        let files = read.files();
        Layout(
            files
                .map(|(path, file)| (path.to_owned(), file.content.clone()))
                .collect(),
        )
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&self.0[path]).unwrap()
    }

    /// The blob that a descriptor names; digest and size must be right.
    fn blob(&self, descriptor: &Value) -> &[u8] {
        let digest = descriptor["digest"].as_str().unwrap();
        let digest = digest.strip_prefix("sha256:").unwrap();
        let blob = &self.0[&format!("blobs/sha256/{digest}")];
        assert_eq!(sha256(blob), digest);
        assert_eq!(descriptor["size"], blob.len());
        blob
    }
}

#[test]
fn an_image_is_read_back_as_it_was_written() {
    let image = image();
    let layout = Layout::of(&image);
    assert_eq!(layout.json("oci-layout")["imageLayoutVersion"], "1.0.0");
    let index = layout.json("index.json");
    let entry = &index["manifests"][0];
    assert_eq!(
        entry["annotations"]["org.opencontainers.image.ref.name"],
        "9.8.7"
    );
    let manifest: Value = serde_json::from_slice(layout.blob(entry)).unwrap();
    let config: Value = serde_json::from_slice(layout.blob(&manifest["config"])).unwrap();
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/wallscope");
    assert_eq!(config["config"]["Cmd"][0], "agent");
    assert_eq!(config["created"], "2001-09-09T01:46:40Z");

    let mut layer = Vec::new();
    let compressed = layout.blob(&manifest["layers"][0]);
    GzDecoder::new(compressed).read_to_end(&mut layer).unwrap();
    let named = format!("sha256:{}", sha256(&layer));
    assert_eq!(config["rootfs"]["diff_ids"][0], named);
    assert_eq!(Tree::read_tar(layer.as_slice()).unwrap(), image.files);
    // The index, the version, and three blobs: nothing that no descriptor names.
    assert_eq!(layout.0.len(), 5);
}

#[test]
fn equal_images_have_equal_bytes_and_others_have_not() {
    let bytes = |image: &Image| {
        let mut archive = Vec::new();
        image
            .layout()
            .unwrap()
            .tar(&mut archive, image.time)
            .unwrap();
        archive
    };
    assert!(bytes(&image()) == bytes(&image()));
    let mut other = image();
    other.files.data("etc/wallscope/agent.toml", "[store]\n");
    assert!(bytes(&image()) != bytes(&other));
}

#[test]
fn an_archive_with_a_link_is_no_tree() {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    archive
        .append_link(&mut header, "etc/shadow", "/etc/shadow")
        .unwrap();
    let error = Tree::read_tar(archive.into_inner().unwrap().as_slice()).unwrap_err();
    assert!(
        error.to_string().contains("etc/shadow is neither"),
        "{error}"
    );
}

#[test]
fn a_tree_lies_on_disk_with_its_modes() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let files = image().files;
    files.write(folder.path()).unwrap();
    for (path, file) in files.files() {
        let path = folder.path().join(path);
        assert_eq!(std::fs::read(&path).unwrap(), file.content);
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, file.mode, "{}", path.display());
    }
    for parent in files.folders() {
        let mode = folder.path().join(parent).metadata().unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, 0o755, "{parent}");
    }
}
