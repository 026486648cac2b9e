//! The file that a page of a report is written to: it appears whole, or what was there before stays.
//!
//! Whether it can be written is found out before a run, which may take hours, begins.

use std::fs::{self, FileType, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use thiserror::Error;

use crate::device;

/// How every page begins.
pub(super) const PAGE: &[u8] = b"<!DOCTYPE html>\n";

/// Why a page cannot be written.
#[derive(Debug, Error)]
pub enum ReportFileError {
    /// Caller: the path ends without a name.
    #[error("--report '{}' names no file: write one such as report.html", path.display())]
    NoName {
        /// What was asked for.
        path: PathBuf,
    },
    /// Caller: there is no such folder.
    #[error("--report {}: the folder {} does not exist: create it, or name another", path.display(), folder.display())]
    NoFolder {
        /// The file asked for.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
    },
    /// Caller: something else has that name.
    #[error("--report {} is {kind}: name a regular file, which is replaced, or one that does not exist", path.display())]
    NotRegular {
        /// The file asked for.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// Caller: what is there is not a page, and would be lost.
    #[error("--report {} is there and is no page of a report: name another file, or remove it first", path.display())]
    NotAPage {
        /// The file asked for.
        path: PathBuf,
    },
    /// Caller: the run reads or writes that file.
    #[error("--report {} is {what} of this run, and would be replaced: name another file", path.display())]
    InUse {
        /// The file asked for.
        path: PathBuf,
        /// What it is to the run.
        what: &'static str,
    },
    /// Host: what the operating system says.
    #[error("--report {}: cannot {step}: {source}", path.display())]
    System {
        /// The file asked for.
        path: PathBuf,
        /// What failed.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// A place for a page.
#[derive(Clone, Debug)]
pub struct ReportFile {
    path: PathBuf,
}

impl ReportFile {
    /// Looks whether a file can be written at `path`, and leaves nothing there.
    ///
    /// # Errors
    /// [`ReportFileError`].
    pub fn new(path: &Path) -> Result<Self, ReportFileError> {
        let file = Self { path: path.to_owned() };
        file.replaced()?;
        file.temporary().map(drop)?;
        Ok(file)
    }

    /// Refuses the file that the device `uri` lies in. To be asked when the device is open, as that may create it.
    ///
    /// # Errors
    /// [`ReportFileError::InUse`].
    pub fn is_not_of_device(&self, uri: &str) -> Result<(), ReportFileError> {
        let there = fs::metadata(&self.path).ok();
        self.is_not(there.is_some_and(|there| device::own_file(uri, &there).is_some()), "the device's file")
    }

    /// Refuses a trace.
    ///
    /// # Errors
    /// [`ReportFileError::InUse`].
    pub fn is_not_trace(&self, trace: &Path) -> Result<(), ReportFileError> {
        let place = |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        let own = place(&self.path);
        self.is_not(own.is_some() && own == place(trace), "the trace")
    }

    fn is_not(&self, wrong: bool, what: &'static str) -> Result<(), ReportFileError> {
        if wrong { Err(ReportFileError::InUse { path: self.path.clone(), what }) } else { Ok(()) }
    }

    /// Writes `text` as the whole of the file.
    ///
    /// # Errors
    /// [`ReportFileError`]; what was there before is there still.
    pub fn write(&self, text: &str) -> Result<(), ReportFileError> {
        let replaced = self.replaced()?;
        let mut temporary = self.temporary()?;
        let file = temporary.as_file_mut();
        let written = file.write_all(text.as_bytes()).and_then(|()| match replaced {
            // What takes the place of a file is as accessible as that was.
            Some(replaced) => file.set_permissions(replaced.permissions()),
            None => Ok(()),
        });
        // Before the name: after a crash it must not stand for a file without its bytes.
        written.and_then(|()| file.sync_all()).map_err(self.failed("write it"))?;
        temporary.persist(&self.path).map_err(|error| self.failed("give it its name")(error.error))?;
        Ok(())
    }

    /// The regular file that is there already.
    fn replaced(&self) -> Result<Option<Metadata>, ReportFileError> {
        if matches!(self.path.as_os_str().as_encoded_bytes().last(), None | Some(b'/')) {
            return Err(ReportFileError::NoName { path: self.path.clone() });
        }
        match fs::symlink_metadata(&self.path) {
            Ok(metadata) if metadata.is_file() => {
                let mut begin = Vec::new();
                let file = fs::File::open(&self.path).map_err(self.failed("look into it"))?;
                file.take(PAGE.len() as u64).read_to_end(&mut begin).map_err(self.failed("look into it"))?;
                match begin.is_empty() || begin == PAGE {
                    true => Ok(Some(metadata)),
                    false => Err(ReportFileError::NotAPage { path: self.path.clone() }),
                }
            }
            Ok(metadata) => {
                Err(ReportFileError::NotRegular { path: self.path.clone(), kind: kind(metadata.file_type()) })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("look at it")(error)),
        }
    }

    fn temporary(&self) -> Result<NamedTempFile, ReportFileError> {
        let folder = match self.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            return Err(ReportFileError::NoFolder { path: self.path.clone(), folder: folder.to_owned() });
        }
        // As for any new file: the umask takes away what it takes away.
        let new =
            tempfile::Builder::new().prefix(".tentpeg-").permissions(Permissions::from_mode(0o666)).tempfile_in(folder);
        new.map_err(self.failed("create a file in its folder"))
    }

    fn failed(&self, step: &'static str) -> impl Fn(io::Error) -> ReportFileError {
        let path = self.path.clone();
        move |source| ReportFileError::System { path: path.clone(), step, source }
    }
}

/// What a file is that is no regular one.
pub(crate) fn kind(of: FileType) -> &'static str {
    if of.is_dir() {
        "a directory"
    } else if of.is_symlink() {
        "a symbolic link"
    } else if of.is_fifo() {
        "a pipe"
    } else if of.is_char_device() || of.is_block_device() {
        "a device"
    } else {
        "a socket"
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_written_whole_and_replaces_one_with_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let file = ReportFile::new(&path).unwrap();
        assert_eq!(names(folder.path()), [""; 0], "nothing before the run");
        file.write("<!DOCTYPE html>\none").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        ReportFile::new(&path).unwrap().write("<!DOCTYPE html>\ntwo").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "<!DOCTYPE html>\ntwo");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()), ["page.html"]);
    }

    #[test]
    fn what_cannot_be_replaced_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let refusal = |path: &Path| ReportFile::new(path).unwrap_err().to_string();
        assert!(refusal(folder.path()).contains("is a directory: name a regular file"));
        assert!(refusal(Path::new("/dev/null")).contains("is a device"));
        assert!(refusal(&at("no/page.html")).contains("/no does not exist: create it"));
        fs::write(at("file"), "").unwrap();
        symlink(at("file"), at("link")).unwrap();
        assert!(refusal(&at("link")).contains("is a symbolic link"));
        assert!(refusal(&at("file/page.html")).contains("cannot look at it"));
        fs::write(at("image"), [0; 4096]).unwrap();
        assert!(refusal(&at("image")).contains("is no page of a report"));
        assert_eq!(fs::read(at("image")).unwrap(), [0; 4096]);
        fs::remove_file(at("image")).unwrap();
        for nameless in [Path::new(""), &at("new/")] {
            assert!(refusal(nameless).contains("names no file"));
        }
        // It became a folder while the run went on.
        let late = ReportFile::new(&at("late")).unwrap();
        fs::create_dir(at("late")).unwrap();
        assert!(late.write("page").unwrap_err().to_string().contains("is a directory"));
        assert_eq!(names(folder.path()), ["file", "late", "link"]);
    }

    #[test]
    fn a_file_of_the_run_is_no_place_for_its_page() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("disk"), folder.path().join("other"));
        let file = ReportFile::new(&path).unwrap();
        let uri = format!("model:path={}", path.display());
        file.is_not_of_device(&uri).unwrap();
        file.is_not_trace(&path).unwrap();
        fs::write(&path, "").unwrap();
        fs::hard_link(&path, &other).unwrap();
        for named in [&path, &other] {
            let file = ReportFile::new(named).unwrap();
            let message = file.is_not_of_device(&uri).unwrap_err().to_string();
            assert!(message.contains("is the device's file of this run"), "{message}");
            assert!(file.is_not_trace(&path).unwrap_err().to_string().contains("is the trace of this run"));
        }
        fs::remove_file(&other).unwrap();
        ReportFile::new(&other).unwrap().is_not_trace(&path).unwrap();
    }
}
