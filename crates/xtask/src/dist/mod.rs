//! `cargo xtask dist`: the packages that people install.
//!
//! | product | built by | from |
//! |---|---|---|
//! | `wallscope_VERSION-1_amd64.deb` | `debian` | the binary for glibc, stripped |
//! | `wallscope-VERSION-x86_64-linux.tar.gz` | `tarball` | the static binary (musl), stripped |
//! | `wallscope-VERSION-oci.tar` | `image` | the static binary |
//! | `wallscope-VERSION-kubernetes.tar.gz` | `tarball` | `packaging/kubernetes` |
//! | `SHA256SUMS` | `sums` | the others |
//!
//! `binary` builds, strips and examines the binaries, `content` collects the files that packages share, `tree`
//! holds the files of one package. Times in archives are those of the last commit or of `SOURCE_DATE_EPOCH`, so
//! two runs with one binary make equal products. `installed` installs the Debian package in a fresh system.
//!
//! Nothing is signed or uploaded. Debug information is not packaged: the binaries are stripped, and the release
//! profile leaves the unstripped ones in cargo's target folder.

mod binary;
mod boot;
mod content;
mod debian;
pub mod image;
mod installed;
mod release;
pub mod sums;
mod tarball;
pub mod tree;

use std::fs;
use std::path::PathBuf;

use crate::{Outcome, root};
use binary::{Binary, CLibrary};
use release::Release;

pub use installed::verify;

/// Options of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Binary for glibc; built unless named.
    pub binary: Option<PathBuf>,
    /// Static binary; built unless named.
    pub static_binary: Option<PathBuf>,
    /// Folder of the products.
    pub output: PathBuf,
}

impl Options {
    /// Reads `[--binary PATH] [--static-binary PATH] [--output DIR]`.
    ///
    /// # Errors
    /// An unknown flag, or a flag without its value.
    pub fn parse(arguments: &[&str]) -> Outcome<Options> {
        let mut options = Options {
            binary: None,
            static_binary: None,
            output: root().join("target/dist"),
        };
        for pair in arguments.chunks(2) {
            match pair {
                ["--binary", path] => options.binary = Some(path.into()),
                ["--static-binary", path] => options.static_binary = Some(path.into()),
                ["--output", path] => options.output = path.into(),
                [flag, ..] => {
                    let known = "--binary PATH, --static-binary PATH, --output DIR";
                    return Err(format!("dist: {flag:?} is none of {known}").into());
                }
                [] => {}
            }
        }
        Ok(options)
    }
}

/// Makes all products. Returns `true`: a product that cannot be made is an error.
///
/// # Errors
/// A tool or a library is missing, or a binary does not build; the sentence names the Debian package to install.
pub fn run(options: &Options) -> Outcome<bool> {
    let release = Release::current()?;
    fs::create_dir_all(&options.output)?;
    let glibc = Binary::of(CLibrary::Glibc, options.binary.as_deref())?;
    let content = content::Content::collect(&glibc, &release)?;
    let mut products = vec![debian::write(&glibc, &content, &release, &options.output)?];
    products.push(tarball::kubernetes(&release, &options.output)?);
    let fixed = Binary::of(CLibrary::Musl, options.static_binary.as_deref())?;
    content::check_version(&fixed, &release)?;
    products.push(tarball::binary(
        &fixed,
        &content,
        &release,
        &options.output,
    )?);
    products.push(image::package(&fixed, &content, &release, &options.output)?);
    let sums = options.output.join("SHA256SUMS");
    fs::write(&sums, sums::lines(&products)?)?;
    products.push(sums);
    for product in &products {
        println!(
            "{:>10} B  {}",
            fs::metadata(product)?.len(),
            product.display()
        );
    }
    Ok(true)
}
