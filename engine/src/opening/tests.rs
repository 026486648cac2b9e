//! Devices in files with labels, and what an engine makes of them.

use std::path::PathBuf;
use std::time::Duration;

use crate::administration::AdministrationError;
use crate::label::stripe::{self, Member, NewSet};
use crate::label::{Durability, NewLabel, NewSegment};
use crate::{OpCode, Request, TransferState};

use super::*;

const MIB: u64 = 1 << 20;
const NODE: Uuid = Uuid::from_u128(7);

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, disk: &str) -> PathBuf {
        self.0.path().join(disk)
    }

    fn uri(&self, disk: &str) -> String {
        format!("model:path={}", self.path(disk).display())
    }

    fn writable(&self, disk: &str) -> String {
        format!("{},overwrite", self.uri(disk))
    }

    fn bytes(&self, disk: &str) -> Vec<u8> {
        fs::read(self.path(disk)).unwrap()
    }

    fn label(&self, disk: &str) {
        let uri = format!("{},size=32MiB", self.uri(disk));
        let mut device = Administration::open_with(uri, &options()).unwrap();
        device.create_label(&NewLabel::default()).unwrap();
        device.close().unwrap();
    }

    fn create(&self, disk: &str, name: &str, capacity: u64) {
        let mut device = Administration::open_with(self.writable(disk), &options()).unwrap();
        let (mut label, mut blocks) = device.change().unwrap();
        let new = NewSegment { name: name.into(), capacity, durability: Durability::Fua, ..NewSegment::default() };
        label.create_segment(&mut *blocks, &new).unwrap();
        drop(blocks);
        device.close().unwrap();
    }

    fn stripe(&self, disks: &[&str], new: &NewSet) {
        let devices = disks.iter().map(|disk| Administration::open_with(self.writable(disk), &options()).unwrap());
        let mut devices: Vec<_> = devices.collect();
        let mut open: Vec<_> = devices.iter_mut().map(|device| device.change().unwrap()).collect();
        let mut members: Vec<_> =
            open.iter_mut().map(|(label, blocks)| Member { label, blocks: &mut **blocks }).collect();
        stripe::create(&mut members, new).unwrap();
    }

    fn owner(&self, disk: &str) -> crate::label::Owner {
        Administration::open(&self.uri(disk)).unwrap().label().unwrap().owner().clone()
    }
}

fn options() -> OpenOptions {
    OpenOptions { node: Some(NODE), ..OpenOptions::default() }
}

fn engine<S: Into<DeviceSource>>(
    devices: impl IntoIterator<Item = S>,
    options: OpenOptions,
) -> Result<Engine, OpenError> {
    Engine::open_devices(devices, options).map(|(engine, _)| engine)
}

#[track_caller]
fn refused<S: Into<DeviceSource>>(devices: impl IntoIterator<Item = S>, options: OpenOptions) -> String {
    match engine(devices, options) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    }
}

/// Writes or reads `bytes`, and waits.
fn transfer(engine: &Engine, opcode: OpCode, segment: usize, target_offset: u64, bytes: &mut [u8]) {
    let memory = engine.allocate_memory(bytes.len()).unwrap();
    memory.view().write(0, bytes);
    let (source, target_id) = (memory.address(), engine.segments()[segment].id);
    let batch = engine.allocate_batch(1).unwrap();
    let request = Request { opcode, source, target_id, target_offset, length: bytes.len() as u64 };
    let task = engine.submit(&batch, &[request]).unwrap();
    batch.wait(Duration::from_secs(60)).unwrap();
    let status = batch.status(task).unwrap();
    assert_eq!(status.state, TransferState::Completed, "{:?} {:?}", batch.refusal(task), batch.nvme_status(task));
    memory.view().read(0, bytes);
}

fn names(engine: &Engine) -> Vec<(&str, u64)> {
    engine.segments().iter().map(|segment| (segment.layout.name.as_str(), segment.capacity)).collect()
}

#[test]
fn a_label_says_which_segments_there_are() {
    let place = Place::new();
    place.label("disk");
    assert!(refused([place.writable("disk")], options()).contains("create one by `tentpeg segment create`"));
    place.create("disk", "a", MIB + 4096);
    place.create("disk", "b", 2 * MIB);
    let opened = engine([place.writable("disk")], options()).unwrap();
    // The last unit of allocation is cut to the capacity.
    assert_eq!(names(&opened), [("a", MIB + 4096), ("b", 2 * MIB)]);
    assert_eq!(opened.segments()[0].layout.durability, Durability::Fua);
    assert!(opened.segments()[0].layout.uuid != [0; 16] && opened.segments()[0].writable);
    let ownership = opened.info().ownership.unwrap();
    assert_eq!((ownership.node, ownership.epoch), (NODE, 1));
    for (segment, byte) in [(0, 0xA), (1, 0xB)] {
        transfer(&opened, OpCode::Write, segment, MIB - 4096, &mut [byte; 4096]);
    }
    opened.close().unwrap();

    // The label is as it was, and each segment has its own.
    let opened = engine([place.uri("disk")], options()).unwrap();
    for (segment, byte) in [(0, 0xA), (1, 0xB)] {
        let mut bytes = [0; 4096];
        transfer(&opened, OpCode::Read, segment, MIB - 4096, &mut bytes);
        assert_eq!(bytes, [byte; 4096]);
    }
    assert_eq!(place.owner("disk").epoch, 1, "a restart is no take-over");
}

#[test]
fn opening_for_reading_writes_nothing() {
    let place = Place::new();
    place.label("disk");
    place.create("disk", "kv", MIB);
    // An end that is lost would be brought up to date.
    let mut torn = place.bytes("disk");
    torn[..MIB as usize].fill(0);
    fs::write(place.path("disk"), &torn).unwrap();
    let read_only = || OpenOptions { read_only: true, ..options() };
    for (uri, options) in [(place.uri("disk"), options()), (place.writable("disk"), read_only())] {
        let opened = engine([uri], options).unwrap();
        assert!(!opened.segments()[0].writable && opened.info().ownership.is_none());
        transfer(&opened, OpCode::Read, 0, 0, &mut [0; 4096]);
        opened.close().unwrap();
        assert!(place.bytes("disk") == torn);
    }
    // Another node's can be read, too.
    let other = OpenOptions { node: Some(Uuid::from_u128(9)), ..OpenOptions::default() };
    engine([place.uri("disk")], other.clone()).unwrap().close().unwrap();
    assert!(refused([place.writable("disk")], other).contains("belongs to node"));
    assert!(place.bytes("disk") == torn);
    let absent = refused([place.uri("none") + ",size=1MiB"], read_only());
    assert!(absent.contains("does not exist, and what is opened for reading is not created"), "{absent}");
    assert!(!place.path("none").exists());
    // Opened for writing the label is mended.
    engine([place.writable("disk")], options()).unwrap().close().unwrap();
    assert!(place.bytes("disk") != torn);
}

#[test]
fn all_of_a_device_is_served_where_nobody_has_any_of_it() {
    let place = Place::new();
    let opened = engine([place.uri("new") + ",size=1MiB"], options()).unwrap();
    assert_eq!(names(&opened), [("whole", MIB)]);
    assert!(opened.info().ownership.is_none(), "there is nothing that an owner could be written to");
    opened.close().unwrap();
    assert_eq!(names(&engine([place.writable("new")], options()).unwrap()), [("whole", MIB)]);

    let mut foreign = vec![0; 4 << 20];
    foreign[..8].copy_from_slice(b"LUKS\xBA\xBE\0\x01");
    fs::write(place.path("luks"), &foreign).unwrap();
    assert!(refused([place.writable("luks")], options()).contains("is not written, for it holds LUKS"));
    let opened = engine([place.uri("luks")], options()).unwrap();
    let mut bytes = [0; 4096];
    transfer(&opened, OpCode::Read, 0, 0, &mut bytes);
    assert!(bytes == foreign[..4096] && place.bytes("luks") == foreign);
    drop(opened);

    place.label("disk");
    let whole = || OpenOptions { scope: Scope::Device, ..options() };
    assert!(refused([place.writable("disk")], whole()).contains("has a label, which would be overwritten"));
    let opened = engine([place.uri("disk")], whole()).unwrap();
    assert_eq!(names(&opened), [("whole", 32 * MIB)]);
}

#[test]
fn a_label_that_is_damaged_is_an_error_and_stays_as_it_is() {
    let place = Place::new();
    place.label("disk");
    let mut bytes = place.bytes("disk");
    for at in [0, 512 << 10, 31 << 20, (31 << 20) + (512 << 10)] {
        bytes[at + 60] ^= 1;
    }
    fs::write(place.path("disk"), &bytes).unwrap();
    for uri in [place.uri("disk"), place.writable("disk")] {
        assert!(refused([uri], options()).contains("the label is damaged"));
    }
    assert!(place.bytes("disk") == bytes);
}

#[test]
fn a_stripe_is_served_whole_or_not_at_all() {
    let place = Place::new();
    let disks = ["a", "b", "c"];
    disks.iter().for_each(|disk| place.label(disk));
    place.create("a", "plain", MIB);
    // One chunk more on the first member than on the others.
    let capacity = 7 * (64 << 10);
    place.stripe(&disks, &NewSet { name: "wide".into(), chunk: 64 << 10, capacity, ..NewSet::default() });
    let all = || disks.iter().rev().map(|disk| place.writable(disk)).collect::<Vec<_>>();
    let opened = engine(all(), options()).unwrap();
    assert_eq!(names(&opened), [("plain", MIB), ("wide", capacity)]);
    let mut bytes: Vec<u8> = (0..capacity).map(|at| (at / 4096 * 7) as u8).collect();
    let written = bytes.clone();
    transfer(&opened, OpCode::Write, 1, 0, &mut bytes);
    bytes.fill(0);
    transfer(&opened, OpCode::Read, 1, 0, &mut bytes);
    assert!(bytes == written && opened.not_opened().is_empty());
    opened.close().unwrap();
    // In another order of devices it is the same.
    let opened = engine(disks.map(|disk| place.uri(disk)), options()).unwrap();
    bytes.fill(0);
    transfer(&opened, OpCode::Read, 1, 0, &mut bytes);
    assert!(bytes == written);
    drop(opened);

    let opened = engine([place.writable("a"), place.writable("c")], options()).unwrap();
    assert_eq!(names(&opened), [("plain", MIB)]);
    let [not_opened] = opened.not_opened() else { panic!("{:?}", opened.not_opened()) };
    assert_eq!(not_opened.name, "wide");
    assert!(not_opened.reason.to_string().contains("of its 3 members these are missing: 1"), "{}", not_opened.reason);
    drop(opened);
    let message = refused([place.uri("b")], options());
    assert!(message.contains("no segment can be opened") && message.contains("missing: 0"), "{message}");
}

/// A stripe's creation that power has cut is decided by whoever opens it, and written down by whoever may write.
#[test]
fn what_was_interrupted_is_settled_when_it_is_opened_for_writing() {
    let place = Place::new();
    let disks = ["a", "b"];
    disks.iter().for_each(|disk| place.label(disk));
    disks.iter().for_each(|disk| place.create(disk, &format!("on {disk}"), MIB));
    let before = place.bytes("b");
    place.stripe(&disks, &NewSet { name: "wide".into(), chunk: 4096, capacity: MIB, ..NewSet::default() });
    let after = place.bytes("b");
    // As if the second member had never heard of it, while the first has it committed: no crash leaves that.
    fs::write(place.path("b"), &before).unwrap();
    let opened = engine(disks.map(|disk| place.writable(disk)), options()).unwrap();
    assert!(opened.not_opened()[0].reason.to_string().contains("is broken"), "{:?}", opened.not_opened());
    drop(opened);
    fs::write(place.path("b"), &after).unwrap();
    let opened = engine(disks.map(|disk| place.writable(disk)), options()).unwrap();
    assert_eq!(opened.segments().len(), 3);
}

#[test]
fn what_cannot_be_told_apart_is_refused() {
    let place = Place::new();
    for disk in ["a", "b"] {
        place.label(disk);
        place.create(disk, "kv", MIB);
    }
    let message = refused([place.writable("a"), place.writable("b")], options());
    assert!(message.starts_with("there is a segment 'kv' on model:") && message.contains("/b,"), "{message}");
    std::os::unix::fs::symlink(place.path("a"), place.path("link")).unwrap();
    for other in [place.writable("a"), place.uri("a"), place.uri("link")] {
        assert!(refused([place.writable("a"), other], options()).contains("once more, or a copy of it"));
    }
    let new = format!("{},size=1MiB", place.uri("new"));
    assert!(refused([new.clone(), new], options()).contains("once more, or a copy of it"));
    assert!(!place.path("new").exists());
    fs::copy(place.path("a"), place.path("copy")).unwrap();
    let before = place.bytes("copy");
    assert!(
        refused([place.uri("a"), place.writable("copy")], options()).contains("it was copied, or the namespace was")
    );
    assert!(place.bytes("copy") == before);
    let of = |name: &str| UnalignedReads::Of(BTreeSet::from([name.to_owned()]));
    let other = OpenOptions { unaligned_reads: of("other"), ..options() };
    assert!(refused([place.uri("a")], other).starts_with("there is no segment 'other' on model:"));
}

#[test]
fn a_segment_is_read_at_any_byte_where_that_was_asked_for() {
    let place = Place::new();
    place.label("disk");
    place.create("disk", "a", MIB);
    place.create("disk", "b", MIB);
    let of = UnalignedReads::Of(BTreeSet::from(["b".to_owned()]));
    for (unaligned_reads, which) in [(UnalignedReads::All, [true, true]), (of, [false, true])] {
        let opened = engine([place.uri("disk")], OpenOptions { unaligned_reads, ..options() }).unwrap();
        assert_eq!([0, 1].map(|segment: usize| opened.segments()[segment].layout.unaligned_reads), which);
        transfer(&opened, OpCode::Read, 1, 1, &mut [0; 3]);
    }
}

#[test]
fn a_device_is_taken_over_once() {
    let place = Place::new();
    place.label("disk");
    place.create("disk", "kv", MIB);
    let other = |take_over| OpenOptions { node: Some(Uuid::from_u128(9)), take_over, ..OpenOptions::default() };
    let before = place.bytes("disk");
    let error = engine([place.writable("disk")], other(false)).err().unwrap();
    assert!(matches!(error, OpenError::Contents(AdministrationError::Owned { .. })), "{error}");
    assert!(place.bytes("disk") == before);
    let opened = engine([place.writable("disk")], other(true)).unwrap();
    let ownership = opened.info().ownership.unwrap();
    assert_eq!((ownership.node, ownership.epoch), (Uuid::from_u128(9), 2));
    opened.close().unwrap();
    assert_eq!((place.owner("disk").node, place.owner("disk").epoch), (Uuid::from_u128(9), 2));
    engine([place.writable("disk")], other(false)).unwrap().close().unwrap();
    engine([place.writable("disk")], other(true)).unwrap().close().unwrap();
    assert_eq!(place.owner("disk").epoch, 2, "what is one's own is not taken over");
    assert!(refused([place.writable("disk")], options()).contains("take the device over with --take-over"));
}
