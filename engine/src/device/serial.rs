//! The serial number of a model, from which it derives its NGUID, EUI64 and UUID: by it a label knows its device again.
//!
//! A model over a file has a number of its file: of the inode number and the time of birth, which a file keeps for life,
//! however often it is opened, written or renamed. A copy is another file, whatever made it and whatever attributes it
//! took along, and so is one that was moved to another file system, or that has got the inode of one that is gone. Where
//! the file system knows no time of birth the device number stands in, which need not outlive a mount. Nothing is kept in
//! the file or beside it, so that reading one and writing one find the same number, whoever may write.
//!
//! Models in memory have numbers in the order in which this process makes them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use sha2::{Digest, Sha256};

/// What sets these digests apart from others of the same bytes.
const DOMAIN: &[u8] = b"tentpeg model store\0";

/// The serial number of a model over the file that this is said of: 20 characters.
pub(super) fn of_file(file: &Metadata) -> String {
    let birth = file.created().ok().and_then(|birth| birth.duration_since(UNIX_EPOCH).ok());
    of_inode(file.ino(), birth.filter(|birth| !birth.is_zero()), file.dev())
}

fn of_inode(inode: u64, birth: Option<Duration>, device: u64) -> String {
    let digest = Sha256::new().chain_update(DOMAIN).chain_update(inode.to_le_bytes());
    let digest = match birth {
        Some(birth) => digest.chain_update(b"birth").chain_update(birth.as_nanos().to_le_bytes()),
        None => digest.chain_update(b"device").chain_update(device.to_le_bytes()),
    };
    digest.finalize()[..8].iter().fold("TENT".to_owned(), |serial, byte| serial + &format!("{byte:02X}"))
}

/// The serial number of a model whose blocks are in memory, or nowhere: no other of this process has it.
pub(super) fn of_memory() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    format!("TENTPEG{:04}", MADE.fetch_add(1, Ordering::Relaxed) + 1)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::administration::{Administration, AdministrationError};
    use crate::label::{LabelError, NewLabel};
    use crate::{Devices, EngineConfig, LaneMode, OpenOptions};

    fn of(path: &Path) -> String {
        of_file(&fs::metadata(path).unwrap())
    }

    #[test]
    fn a_file_keeps_its_number_and_a_copy_has_another() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        fs::write(&one, [1; 4096]).unwrap();
        let serial = of(&one);
        assert!(serial.len() == 20 && serial.starts_with("TENT"), "{serial}");
        fs::copy(&one, &other).unwrap();
        assert_ne!(of(&other), serial);
        fs::write(&one, [2; 8192]).unwrap();
        fs::rename(&one, folder.path().join("renamed")).unwrap();
        assert_eq!(of(&folder.path().join("renamed")), serial);
        fs::rename(&other, &one).unwrap();
        assert_ne!(of(&one), serial, "a name says nothing");
    }

    #[test]
    fn the_time_of_birth_counts_and_the_device_where_there_is_none() {
        let birth = Some(Duration::from_nanos(7));
        assert_eq!(of_inode(1, birth, 2), of_inode(1, birth, 3), "device numbers change from mount to mount");
        let others = [of_inode(1, birth, 7), of_inode(2, birth, 7), of_inode(1, None, 7), of_inode(1, None, 8)];
        let others = others.into_iter().chain([of_inode(1, Some(Duration::from_nanos(8)), 7)]);
        assert_eq!(others.collect::<std::collections::BTreeSet<_>>().len(), 5);
    }

    #[test]
    fn models_in_memory_have_numbers_of_their_own() {
        let mut devices = Devices::new(LaneMode::CallerDriven, EngineConfig::default());
        for uri in ["model:size=1MiB", "model:size=1MiB", "model:store=null,size=1MiB"] {
            devices.open(uri).unwrap();
        }
        let numbers: std::collections::BTreeSet<_> =
            devices.as_slice().iter().map(|device| device.info().controller.serial_number()).collect();
        assert_eq!(numbers.len(), 3, "{numbers:?}");
        let nguids: std::collections::BTreeSet<_> =
            devices.as_slice().iter().map(|device| device.info().namespace.nguid).collect();
        assert_eq!(nguids.len(), 3);
    }

    /// What a label's identity is for.
    #[test]
    fn a_copy_of_a_labelled_file_is_not_taken_for_the_device() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let open = |name: &str, more: &str| {
            let options = OpenOptions { node: Some(uuid::Uuid::from_u128(1)), ..OpenOptions::default() };
            Administration::open_with(format!("model:path={}{more}", path(name).display()), &options).unwrap()
        };
        let mut device = open("one", ",size=4MiB");
        device.create_label(&NewLabel::default()).unwrap();
        device.close().unwrap();
        fs::copy(path("one"), path("copy")).unwrap();
        fs::rename(path("one"), path("moved")).unwrap();

        let mut moved = open("moved", "");
        assert_eq!(moved.label().unwrap().identity(), moved.identity());
        for more in ["", ",overwrite"] {
            let error = open("copy", more).label().unwrap_err();
            let AdministrationError::Label { source: LabelError::Replaced { label, device }, .. } = error else {
                panic!("{error}");
            };
            assert_eq!((&*label, label.nguid != device.nguid), (moved.identity(), true));
        }
    }
}
