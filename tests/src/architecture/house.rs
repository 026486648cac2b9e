//! All source files of the workspace, each with its crate and module.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::CRATES;
use super::paths::Contents;

/// A source file and where it belongs.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// From the workspace's root, with `/`.
    pub path: String,
    /// The crate's name in code.
    pub krate: &'static str,
    /// The module that the file is, from the crate's root.
    pub module: Vec<String>,
    /// Whether it is part of a test module or an integration test: then the order of rooms does not bind it.
    pub exempt: bool,
    /// What stands in it.
    pub text: String,
}

impl SourceFile {
    /// A file of this path and content; `None` when it is in no crate that is known.
    pub fn new(path: &str, text: String) -> Option<Self> {
        let (folder, rest) = path.split_once('/')?;
        let (_, krate) = CRATES.iter().find(|(name, _)| *name == folder)?;
        let (root, rest) = rest.split_once('/').unwrap_or(("", rest));
        let mut module: Vec<String> = rest.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
        // A binary is the root of a crate of its own, and of the same room.
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        Some(Self { path: path.to_owned(), krate, module, exempt: matches!(root, "tests" | "benches"), text })
    }
}

/// The whole workspace.
#[derive(Debug)]
pub struct House {
    /// Its source files.
    pub files: Vec<SourceFile>,
    /// Folders of crates that are not in the list of crates.
    pub unknown: Vec<String>,
}

impl House {
    /// Reads the workspace that this crate is part of.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read() -> io::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let (mut files, mut unknown) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&root)? {
            let folder = entry?.path();
            if !folder.join("Cargo.toml").is_file() {
                continue;
            }
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if CRATES.iter().any(|(known, _)| *known == name) {
                collect(&root, &folder, &mut files)?;
            } else {
                unknown.push(name);
            }
        }
        mark_test_modules(&mut files);
        Ok(Self { files, unknown })
    }
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<SourceFile>) -> io::Result<()> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(root, &path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let shown = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            files.extend(SourceFile::new(&shown, fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

/// Exempts the files of modules that are declared under `#[cfg(test)]`, and those below them. The name alone exempts
/// nothing.
fn mark_test_modules(files: &mut [SourceFile]) {
    let mut exempt = Vec::new();
    for file in files.iter() {
        let declared = Contents::of(&file.text).map(|contents| contents.test_modules).unwrap_or_default();
        exempt.extend(declared.into_iter().map(|module| (file.krate, [file.module.clone(), module].concat())));
    }
    for file in files {
        file.exempt |= exempt.iter().any(|(krate, module)| *krate == file.krate && file.module.starts_with(module));
    }
}
