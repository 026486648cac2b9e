//! What lies in the places of a label on two namespaces: anything.

use crc::{CRC_32_ISCSI, Crc};
use tentpeg_engine::blocks::Blocks;
use tentpeg_engine::blocks::memory::MemoryBlocks;
use tentpeg_engine::label::stripe::{self, Member, SetError};
use tentpeg_engine::label::{Label, LabelError, Mode, NewSegment, Repair, erase, inspect, repair};

use super::{Input, Reached};

const BLOCK: u64 = 512;
/// Both ends, and as many blocks between them.
const BLOCKS: u64 = (2 << 20) / BLOCK + DATA;
const DATA: u64 = 64;
const SLOT: u64 = 512 << 10;
/// The most bytes that are put into a slot.
const MOST: u16 = 4096;

/// Puts what the input says into the slots of two namespaces, opens them, and changes what opens. Whatever is there:
/// reading writes nothing, what is believed can be so, a change is there when it is opened again, and no set is whole
/// without its members.
///
/// # Panics
/// When one of that does not hold.
pub fn label(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let mut reached = Reached::default();
    let mut devices = [(); 2].map(|()| MemoryBlocks::new(BLOCKS, BLOCK as u32));
    for device in &mut devices {
        fill(device, &mut input);
    }
    for device in &mut devices {
        device.begin_journal();
        let findings = inspect(device).expect("it can be read");
        assert!(!findings.to_string().is_empty());
        match Label::read(device) {
            Ok(label) => check(&label, &mut reached),
            Err(error) => note(&error, &mut reached),
        }
        assert!(device.journal().is_empty(), "reading writes nothing");
    }
    striped(&mut devices, &mut reached);
    for device in &mut devices {
        change(device, &mut input, &mut reached);
    }
    reached
}

/// Fills the slots that the input names.
fn fill(device: &mut MemoryBlocks, input: &mut Input) {
    let ends = [0, SLOT, BLOCKS * BLOCK - 2 * SLOT, BLOCKS * BLOCK - SLOT];
    let mask = input.u8();
    for slot in ends.into_iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, slot)| slot) {
        let sealed = !input.flag();
        let mut bytes = vec![0; usize::from(input.u16() % (MOST + 1))];
        input.fill(&mut bytes);
        if sealed && bytes.len() >= 512 {
            bytes[..8].copy_from_slice(b"TENTPEG\0");
            let length = bytes.len() as u32;
            bytes[12..16].copy_from_slice(&length.to_le_bytes());
            bytes[40..44].fill(0);
            let crc = Crc::<u32>::new(&CRC_32_ISCSI).checksum(&bytes);
            bytes[40..44].copy_from_slice(&crc.to_le_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(BLOCK as usize), 0);
        device.write(slot / BLOCK, &bytes).expect("it lies in the slot");
    }
}

fn note(error: &LabelError, reached: &mut Reached) {
    assert!(!error.to_string().is_empty());
    let what = match error {
        LabelError::Blank => "blank",
        LabelError::Foreign(_) => "foreign",
        LabelError::Damaged(_) => "damaged",
        LabelError::Newer { .. } => "newer",
        LabelError::Conflict { .. } | LabelError::TwoDevices { .. } => "in conflict",
        LabelError::Replaced { .. } | LabelError::Reformatted { .. } | LabelError::Resized { .. } => {
            "another namespace"
        }
        LabelError::Overwritten { .. } => "overwritten",
        other => panic!("an error of another kind: {other}"),
    };
    reached.note(what, 1);
}

/// What a label says can be so.
fn check(label: &Label, reached: &mut Reached) {
    reached.note("opened", 1);
    let ends = (1 << 20) / u64::from(label.block_size());
    let data = ends..label.blocks() - ends;
    let extents = label.segments().flat_map(|segment| segment.extents.iter().copied()).chain(label.scratch());
    let mut taken: Vec<_> = extents.map(|extent| (extent.slba(), extent.end())).collect();
    taken.sort_unstable();
    assert!(taken.iter().all(|(slba, end)| data.start <= *slba && slba < end && *end <= data.end));
    assert!(taken.windows(2).all(|pair| pair[0].1 <= pair[1].0), "no block is in two segments");
    let mut names: Vec<_> = label.segments().map(|segment| segment.name.clone()).collect();
    reached.note("segments", names.len() as u64);
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    assert!(label.free_blocks() <= data.end - data.start);
    for segment in label.segments() {
        let blocks: u64 = segment.extents.iter().map(|extent| extent.blocks()).sum();
        assert!((1..=blocks).contains(&segment.capacity) && segment.generation > 0);
    }
}

/// Looks for sets over the devices that open, and settles them.
fn striped(devices: &mut [MemoryBlocks; 2], reached: &mut Reached) {
    let mut open = Vec::new();
    for device in devices {
        let Ok(identity) = Label::read(device).map(|label| *label.identity()) else { continue };
        if let Ok(label) = Label::open(device, &identity, Mode::ReadWrite) {
            open.push((label, device));
        }
    }
    let labels: Vec<_> = open.iter().map(|(label, _)| label).collect();
    let decided = stripe::sets(&labels);
    for found in &decided {
        match &found.set {
            Ok(Some(set)) => {
                assert!(set.parts.len() <= labels.len() && set.capacity > 0);
                reached.note("whole sets", 1);
            }
            Ok(None) => reached.note("sets that are gone", 1),
            Err(SetError::Incomplete { missing, .. }) => {
                assert!(!missing.is_empty());
                reached.note("incomplete sets", 1);
            }
            Err(_) => reached.note("broken sets", 1),
        }
    }
    let mut members: Vec<_> = open.iter_mut().map(|(label, blocks)| Member { label, blocks: &mut **blocks }).collect();
    // A sequence that has no next is the one reason not to settle.
    if let Ok(settled) = stripe::settle(&mut members) {
        let kept = decided.iter().filter(|found| found.set != Ok(None)).map(|found| &found.set);
        assert!(settled.iter().map(|found| &found.set).eq(kept), "settled otherwise than decided");
        assert!(settled.iter().all(|found| !found.unsettled));
    }
}

/// Changes a label that opens, and sees that the change is there. Mends and erases it.
fn change(device: &mut MemoryBlocks, input: &mut Input, reached: &mut Reached) {
    let identity = Label::read(device).map(|label| *label.identity()).unwrap_or_default();
    let mut label = match Label::open(device, &identity, Mode::ReadWrite) {
        Ok(label) => label,
        Err(error) => {
            note(&error, reached);
            let mended = repair(device, &identity, Repair { resized: true });
            if mended.is_ok() {
                reached.note("repaired", 1);
                Label::open(device, &identity, Mode::ReadWrite).expect("it was mended");
            }
            assert!(erase(device).is_err() || Label::read(device).is_err(), "it was erased");
            return;
        }
    };
    for _ in 0..input.u8() % 4 {
        let name = format!("{}", input.u8() % 3);
        let capacity = u64::from(input.u8() % 80) * BLOCK;
        let made = match input.u8() % 4 {
            0 => label.create_segment(device, &NewSegment { name, capacity, ..NewSegment::default() }),
            1 => label.resize_segment(device, &name, capacity),
            2 => label.rename_segment(device, &name, "3"),
            _ => label.delete_segment(device, &name),
        };
        reached.note(if made.is_ok() { "changes made" } else { "changes refused" }, 1);
        let again = Label::open(device, &identity, Mode::ReadOnly).expect("it opens after every change");
        assert!(again.segments().eq(label.segments()) && again.sequence() == label.sequence());
        check(&again, reached);
    }
    erase(device).expect("there is a label");
    assert!(Label::read(device).is_err(), "it was erased");
}
