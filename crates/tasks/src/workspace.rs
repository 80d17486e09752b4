//! Workspace, as cargo knows it: where it is, where its products go, its crates.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::shell;

/// The workspace, as `cargo metadata` tells it.
pub struct Workspace {
    /// The repository's root.
    pub root: PathBuf,
    /// Target folder of cargo.
    pub target: PathBuf,
    /// Version of all crates.
    pub version: String,
    /// The workspace's crates.
    pub crates: Vec<Crate>,
}

/// A crate of the workspace.
pub struct Crate {
    /// Its name in Cargo.toml.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// The root files of its libraries and programs.
    pub roots: Vec<PathBuf>,
    /// Names of the packages that the product itself needs: no dev-dependencies.
    pub dependencies: Vec<String>,
}

impl Workspace {
    /// Asks cargo.
    pub fn load() -> Result<Self> {
        let text = shell::capture(
            shell::cargo()
                .args(["metadata", "--no-deps", "--format-version", "1"])
                .current_dir(source_root()?),
        )?;
        let metadata: Value = serde_json::from_str(&text).context("cargo metadata wrote no JSON")?;
        let crates = list(&metadata["packages"]).iter().map(Crate::parse).collect::<Result<Vec<_>>>()?;
        Ok(Self {
            root: text_of(&metadata["workspace_root"])?.into(),
            target: text_of(&metadata["target_directory"])?.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            crates,
        })
    }

    /// Whether a crate of this name exists.
    pub fn has_crate(&self, name: &str) -> bool {
        self.crates.iter().any(|krate| krate.name == name)
    }

    /// Folder where `x` was called, or the current folder.
    pub fn start_folder(&self) -> PathBuf {
        std::env::var_os("TOMPION_START_DIR").map_or_else(|| self.root.clone(), PathBuf::from)
    }

    /// A path that someone typed where `x` was called.
    pub fn typed_path(&self, path: &str) -> PathBuf {
        self.start_folder().join(path)
    }
}

impl Crate {
    fn parse(package: &Value) -> Result<Self> {
        let manifest = PathBuf::from(text_of(&package["manifest_path"])?);
        let folder = manifest.parent().context("a manifest has a folder")?.to_path_buf();
        let is_product = |target: &&Value| {
            list(&target["kind"]).iter().any(|kind| {
                matches!(kind.as_str(), Some("lib" | "rlib" | "cdylib" | "staticlib" | "bin" | "proc-macro"))
            })
        };
        let roots = list(&package["targets"])
            .iter()
            .filter(is_product)
            .map(|target| Ok(PathBuf::from(text_of(&target["src_path"])?)))
            .collect::<Result<_>>()?;
        let dependencies = list(&package["dependencies"])
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| Ok(text_of(&dependency["name"])?.to_owned()))
            .collect::<Result<_>>()?;
        Ok(Self { name: text_of(&package["name"])?.to_owned(), folder, roots, dependencies })
    }
}

/// The repository's root, from where this program was built.
fn source_root() -> Result<&'static Path> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest.ancestors().nth(2).context("crates/tasks is a folder of the repository")?;
    ensure!(root.is_dir(), "{} is gone: build the tasks again", root.display());
    Ok(root)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_of(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("cargo metadata: expected a string, found {value}"))
}
