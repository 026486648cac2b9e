use std::fs;

use tentpeg_driver::model::{Drive, Model, ModelConfig, SoftwareIommu, StoreConfig};

use super::*;
use crate::label::NewSegment;
use crate::ownership::lock::LockError;

/// As node `number`.
fn open(uri: &str, number: u128) -> Result<Administration, OpenError> {
    Administration::open_with(uri, &OpenOptions { node: Some(Uuid::from_u128(number)), ..OpenOptions::default() })
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn uri(&self, more: &str) -> String {
        format!("model:path={}{more}", self.folder.path().join("disk").display())
    }

    fn disk(&self) -> Vec<u8> {
        fs::read(self.folder.path().join("disk")).unwrap()
    }

    fn labelled(&self, owner: u128) {
        let mut device = open(&self.uri(",size=16MiB"), owner).unwrap();
        device.create_label(&NewLabel::default()).unwrap();
        device.close().unwrap();
    }
}

#[test]
fn a_label_is_made_changed_and_found_again() {
    let place = Place::new();
    place.labelled(7);
    let mut device = open(&place.uri(",overwrite"), 7).unwrap();
    assert!(device.has_label() && device.foreign().is_empty());
    let (mut label, mut blocks) = device.change().unwrap();
    assert_eq!((label.owner().node, label.owner().epoch), (Uuid::from_u128(7), 1));
    let new = NewSegment { name: "kv".into(), capacity: 4 << 20, ..NewSegment::default() };
    label.create_segment(&mut *blocks, &new).unwrap();
    drop(blocks);
    device.close().unwrap();

    let mut device = open(&place.uri(""), 7).unwrap();
    assert_eq!(device.label().unwrap().segment("kv").unwrap().capacity, 1024);
    assert!(matches!(device.change(), Err(AdministrationError::ReadOnly { .. })));
    drop(device);

    let mut device = open(&place.uri(",overwrite"), 7).unwrap();
    device.erase_label().unwrap();
    drop(device);
    let mut device = open(&place.uri(""), 7).unwrap();
    let error = device.label().unwrap_err();
    assert!(matches!(error, AdministrationError::Label { source: LabelError::Blank, .. }), "{error}");
}

#[test]
fn what_is_another_nodes_is_not_written() {
    let place = Place::new();
    place.labelled(7);
    let before = place.disk();
    let mut device = open(&place.uri(",overwrite"), 8).unwrap();
    let refused = |error: AdministrationError| {
        let message = error.to_string();
        assert!(message.contains(&Uuid::from_u128(7).to_string()), "{message}");
        assert!(matches!(error, AdministrationError::Owned { .. }));
    };
    refused(device.change().err().unwrap());
    refused(device.erase_label().unwrap_err());
    refused(device.repair_label(Repair::default()).unwrap_err());
    let replace = NewLabel { replace: true, ..NewLabel::default() };
    refused(device.create_label(&replace).unwrap_err());
    device.close().unwrap();
    assert!(place.disk() == before);
    let mut device = open(&place.uri(",overwrite"), 7).unwrap();
    assert_eq!(device.create_label(&replace).unwrap().owner().epoch, 2);
}

/// The signature of a swap area of pages of 4 KiB.
fn put_swap(bytes: &mut [u8], at: usize) {
    bytes[at + 1024..at + 1028].copy_from_slice(&1_u32.to_le_bytes());
    bytes[at + 1028..at + 1032].copy_from_slice(&3000_u32.to_le_bytes());
    bytes[at + 4086..at + 4096].copy_from_slice(b"SWAPSPACE2");
}

#[test]
fn what_is_foreign_is_named_and_not_written() {
    let place = Place::new();
    let mut bytes = vec![0; 16 << 20];
    put_swap(&mut bytes, 0);
    fs::write(place.folder.path().join("disk"), &bytes).unwrap();
    let mut device = open(&place.uri(",overwrite"), 7).unwrap();
    assert!(!device.has_label());
    for replace in [false, true] {
        let new = NewLabel { replace, ..NewLabel::default() };
        let error = device.create_label(&new).unwrap_err();
        assert!(matches!(error, AdministrationError::Foreign { .. }) && error.to_string().contains("swap"), "{error}");
    }
    assert!(matches!(device.change(), Err(AdministrationError::Foreign { .. })));
    drop(device);
    assert!(place.disk() == bytes);
}

#[test]
fn somebody_else_who_has_it_open_is_named() {
    let place = Place::new();
    place.labelled(7);
    let _device = open(&place.uri(",overwrite"), 7).unwrap();
    let error = open(&place.uri(",overwrite"), 7).err().unwrap();
    let message = error.to_string();
    assert!(matches!(error, OpenError::Lock(LockError::Held { .. })), "{message}");
    assert!(message.contains(&std::process::id().to_string()), "{message}");
}

#[test]
fn a_function_is_locked_by_its_namespace() {
    let place = Place::new();
    let locks = LockFolder::at(place.folder.path().join("locks"));
    let open = |writable| {
        let config = ModelConfig { size: 16 << 20, store: StoreConfig::Memory, ..ModelConfig::default() };
        let model = Model::new(config, Drive::Stepped, &SoftwareIommu::new()).unwrap();
        let options = OpenOptions { locks: Some(locks.clone()), ..OpenOptions::default() };
        let opened =
            Administration::open_with(DeviceSource::Function { function: model.function(), writable }, &options);
        opened.map(|opened| (opened, model))
    };
    let (first, _model) = open(true).unwrap();
    let error = open(false).err().unwrap();
    assert!(matches!(error, OpenError::Lock(LockError::Held { .. })), "{error}");
    drop(first);
    let _readers = (open(false).unwrap(), open(false).unwrap());
    assert!(matches!(open(true).err().unwrap(), OpenError::Lock(LockError::Held { .. })));
}

#[test]
fn a_file_that_came_to_nothing_is_gone() {
    let place = Place::new();
    let mut device = open(&place.uri(",size=1MiB"), 7).unwrap();
    let error = device.create_label(&NewLabel::default()).unwrap_err();
    assert!(matches!(error, AdministrationError::Label { source: LabelError::Unsuitable { .. }, .. }), "{error}");
    drop(device);
    assert!(!place.folder.path().join("disk").exists());
}
