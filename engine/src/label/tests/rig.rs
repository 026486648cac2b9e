//! Labelled devices whose power can go at any moment, and what must hold when it has.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use crate::blocks::Blocks;
use crate::blocks::memory::{Change, MemoryBlocks, Torn};
use crate::label::stripe::{self, Member, Set};
use crate::label::{Durability, Identity, Label, Mode, NewLabel, NewSegment, Owner, SegmentEntry, create};

pub(super) const BLOCK: usize = 512;
/// Blocks between the ends.
pub(super) const DATA: u64 = 24;
/// What former tenants have left in blocks that are free.
const LEFT_BEHIND: u8 = 0xDD;

/// Devices of a small block, on one clock, each with a label and with data of former tenants.
#[derive(Clone)]
pub(super) struct Rig {
    pub(super) devices: Vec<MemoryBlocks>,
    clock: Arc<AtomicU64>,
    honours_fua: bool,
}

/// What the labels say, but for their sequence.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct View {
    pub(super) plain: Vec<Vec<SegmentEntry>>,
    pub(super) sets: Vec<Set>,
    pub(super) owners: Vec<Owner>,
}

pub(super) type Bytes = HashMap<Uuid, Vec<u8>>;

pub(super) fn identity(device: usize) -> Identity {
    Identity { nguid: [device as u8 + 1; 16], ..Identity::default() }
}

pub(super) fn segment(name: &str, blocks: u64) -> NewSegment {
    NewSegment {
        name: name.to_owned(),
        uuid: Uuid::nil(),
        capacity: blocks * BLOCK as u64,
        durability: Durability::Flush,
    }
}

impl Rig {
    pub(super) fn new(devices: usize) -> Self {
        let clock = Arc::<AtomicU64>::default();
        let blocks = (2 << 20) / BLOCK as u64 + DATA;
        let device = |index| {
            let mut device = MemoryBlocks::new(blocks, BLOCK as u32).with_clock(Arc::clone(&clock));
            device.write((1 << 20) / BLOCK as u64, &[LEFT_BEHIND; DATA as usize * BLOCK]).unwrap();
            let alignment = BLOCK as u64;
            let new = NewLabel { identity: identity(index), alignment, scratch: 0, ..NewLabel::default() };
            create(&mut device, &new).unwrap();
            device
        };
        Self { devices: (0..devices).map(device).collect(), clock, honours_fua: true }
    }

    /// Whether a write is durable at once, or only after a flush.
    pub(super) fn honour_fua(&mut self, honours: bool) {
        self.honours_fua = honours;
        self.devices.iter_mut().for_each(|device| device.honour_fua(honours));
    }

    pub(super) fn open(&mut self, index: usize, mode: Mode) -> Label {
        Label::open(&mut self.devices[index], &identity(index), mode).unwrap()
    }

    /// Lends a label and its device.
    pub(super) fn change<R>(&mut self, index: usize, change: impl FnOnce(&mut Label, &mut MemoryBlocks) -> R) -> R {
        let mut label = self.open(index, Mode::ReadWrite);
        change(&mut label, &mut self.devices[index])
    }

    /// Lends all labels and their devices.
    pub(super) fn members<R>(&mut self, change: impl FnOnce(&mut [Member<'_>]) -> R) -> R {
        let mut labels: Vec<_> = (0..self.devices.len()).map(|index| self.open(index, Mode::ReadWrite)).collect();
        let members = labels.iter_mut().zip(&mut self.devices);
        let mut members: Vec<_> = members.map(|(label, blocks)| Member { label, blocks }).collect();
        change(&mut members)
    }

    pub(super) fn set(&mut self) -> Uuid {
        self.view().unwrap().sets[0].uuid
    }

    /// What the labels say to one who only reads.
    pub(super) fn view(&mut self) -> Result<View, String> {
        let open = |(index, device): (usize, &mut MemoryBlocks)| {
            Label::open(device, &identity(index), Mode::ReadOnly).map_err(|error| format!("it does not open: {error}"))
        };
        let labels: Vec<_> = self.devices.iter_mut().enumerate().map(open).collect::<Result<_, _>>()?;
        view(&labels)
    }

    /// Every tenant writes all of its blocks.
    pub(super) fn tenants_write(&mut self) {
        for (device, part) in self.view().unwrap().parts() {
            let pattern =
                part.uuid.as_bytes().repeat(part.extents.iter().map(|e| e.blocks()).sum::<u64>() as usize * BLOCK / 16);
            let mut data = pattern.chunks(BLOCK);
            for block in part.extents.iter().flat_map(|extent| extent.slba()..extent.end()).take(part.capacity as usize)
            {
                self.devices[device].write(block, data.next().unwrap()).unwrap();
            }
        }
    }

    /// What each tenant reads.
    pub(super) fn bytes(&mut self, view: &View) -> Bytes {
        let mut bytes = Bytes::new();
        for (device, part) in view.parts() {
            let mut data = Vec::new();
            for extent in &part.extents {
                let mut piece = vec![0; extent.blocks() as usize * BLOCK];
                self.devices[device].read(extent.slba(), &mut piece).unwrap();
                data.append(&mut piece);
            }
            data.truncate(part.capacity as usize * BLOCK);
            bytes.insert(part.uuid, data);
        }
        bytes
    }

    /// Everything so far is on the medium, and what comes is recorded.
    pub(super) fn begin(&mut self) -> u64 {
        self.devices.iter_mut().for_each(MemoryBlocks::begin_journal);
        self.clock.load(Ordering::Relaxed)
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    pub(super) fn cut(&self, tick: u64, torn: &Torn<'_>, kept: &dyn Fn(u64) -> bool) -> Self {
        let devices = self.devices.iter().map(|device| device.cut(tick, torn, kept)).collect();
        Self { devices, clock: Arc::clone(&self.clock), honours_fua: self.honours_fua }
    }

    /// The device that took the command of this tick, and the command.
    fn in_flight(&self, tick: u64) -> Option<(usize, &Change)> {
        self.devices.iter().enumerate().find_map(|(index, device)| {
            let command = device.journal().iter().find(|command| command.tick == tick)?;
            Some((index, &command.change))
        })
    }
}

pub(super) fn view(labels: &[Label]) -> Result<View, String> {
    let plain = |label: &Label| label.segments().filter(|segment| segment.stripe.is_none()).cloned().collect();
    let sets = stripe::sets(&labels.iter().collect::<Vec<_>>());
    let sets = sets.into_iter().filter_map(|found| found.set.transpose());
    Ok(View {
        plain: labels.iter().map(plain).collect(),
        sets: sets.collect::<Result<_, _>>().map_err(|error| error.to_string())?,
        owners: labels.iter().map(|label| label.owner().clone()).collect(),
    })
}

impl View {
    /// All that tenants can read: plain segments, and members' parts of sets, with their device.
    fn parts(&self) -> impl Iterator<Item = (usize, &SegmentEntry)> {
        let plain = self.plain.iter().enumerate().flat_map(|(device, all)| all.iter().map(move |one| (device, one)));
        // The members of every set here are the devices, in their order.
        plain.chain(self.sets.iter().flat_map(|set| set.parts.iter().enumerate()))
    }
}

/// What must hold after a crash in a change that leads from one view to another.
pub(super) struct Promise {
    pub(super) old: View,
    pub(super) new: View,
    /// What tenants have read before the change.
    pub(super) bytes: Bytes,
}

/// In which state a crash has left the labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Old,
    New,
}

impl Promise {
    /// The labels say the old or the new state, and every tenant reads what it had written, and zeroes behind it.
    pub(super) fn check(&self, view: &View, read: &Bytes) -> Result<State, String> {
        let state = match view {
            view if *view == self.old => State::Old,
            view if *view == self.new => State::New,
            other => return Err(format!("neither the old nor the new state: {other:?}")),
        };
        for (_, part) in view.parts() {
            let written = self.bytes.get(&part.uuid).map_or(&[][..], Vec::as_slice);
            let read = read.get(&part.uuid).map_or(&[][..], Vec::as_slice);
            let (kept, new) = read.split_at(read.len().min(written.len()));
            if kept != &written[..kept.len()] || read.len() != part.capacity as usize * BLOCK {
                return Err(format!("in the {state:?} state {} has lost what it had written", part.name));
            }
            if new.chunks(BLOCK).any(|block| *block != [0; BLOCK][..]) {
                return Err(format!("in the {state:?} state {} reads what others have written", part.name));
            }
        }
        Ok(state)
    }

    fn check_rig(&self, rig: &mut Rig) -> Result<State, String> {
        let view = rig.view()?;
        let bytes = rig.bytes(&view);
        self.check(&view, &bytes)
    }

    /// Opening for writing comes to the same state; then either end of each device can be lost, and the freed blocks can
    /// be used.
    fn check_recovery(&self, left: &Rig) -> Result<(), String> {
        let mut rig = left.clone();
        let state = self.check_rig(&mut rig)?;
        rig.members(stripe::settle).map_err(|error| error.to_string())?;
        let same = |rig: &mut Rig, when: &str| match self.check_rig(rig) {
            Ok(after) if after == state => Ok(()),
            other => Err(format!("{when}: {state:?} became {other:?}")),
        };
        same(&mut rig, "opened for writing")?;
        let ends = [0, rig.devices[0].blocks() - (1 << 20) / BLOCK as u64];
        for end in ends {
            let mut one_end = rig.clone();
            one_end.devices.iter_mut().for_each(|device| device.zero(end, (1 << 20) / BLOCK as u64).unwrap());
            same(&mut one_end, "one end lost")?;
        }
        for index in 0..rig.devices.len() {
            rig.change(index, |label, device| {
                let free = label.free_blocks();
                if free > 0 {
                    label.create_segment(device, &segment("all that is free", free)).unwrap();
                    label.delete_segment(device, "all that is free").unwrap();
                }
            });
        }
        same(&mut rig, "what is free was used")
    }
}

/// What a search has gone through.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Crashes {
    pub(super) old: u64,
    pub(super) new: u64,
}

impl Crashes {
    fn add(&mut self, state: State) {
        *(if state == State::Old { &mut self.old } else { &mut self.new }) += 1;
    }
}

/// Makes `change`, and has the power go before, in and behind each of its commands: at each byte, with each choice of
/// blocks, and with what the cache keeps chosen in many ways. Says what is wrong first.
pub(super) fn survives(mut rig: Rig, change: impl FnOnce(&mut Rig)) -> Result<Crashes, String> {
    let old = rig.view()?;
    let bytes = rig.bytes(&old);
    let start = rig.begin();
    change(&mut rig);
    let promise = Promise { old, new: rig.view()?, bytes };
    assert_ne!(promise.old, promise.new, "a change changes something");
    let mut crashes = Crashes::default();
    for tick in start..=rig.now() {
        for kept in 0..64_u64 {
            // All subsets of up to six; of more, some.
            let chosen =
                |number: u64| (kept >> (number % 6)) & 1 == 1 && (number < 6 || kept == 63 || number % 5 != kept % 5);
            let mut left = rig.cut(tick, &Torn::Bytes(0), &chosen);
            let at = |error| format!("before command {}, cache {kept:06b}: {error}", tick - start);
            crashes.add(promise.check_rig(&mut left).map_err(at)?);
            if matches!(kept, 0 | 63 | 0b100101) {
                promise.check_recovery(&left).map_err(at)?;
            }
        }
        let Some((index, change)) = rig.in_flight(tick) else { continue };
        let (slba, data) = match change {
            Change::Flush => continue,
            Change::Write { slba, data } => (*slba, data.clone()),
            Change::Zero { slba, blocks } => (*slba, vec![0; *blocks as usize * BLOCK]),
        };
        for mask in 0..1_u64 << (data.len() / BLOCK).min(4) {
            let mut left = rig.cut(tick, &Torn::Blocks(&|block| mask >> (block % 4) & 1 == 1), &|_| true);
            let at = |error| format!("in command {}, blocks {mask:04b}: {error}", tick - start);
            crashes.add(promise.check_rig(&mut left).map_err(at)?);
            promise.check_recovery(&left).map_err(at)?;
        }
        if !rig.honours_fua {
            // The same bytes go the same way as where FUA is honoured.
            continue;
        }
        let mut left = rig.cut(tick, &Torn::Bytes(0), &|_| false);
        let mut labels: Vec<_> = (0..left.devices.len()).map(|index| left.open(index, Mode::ReadOnly)).collect();
        let mut seen = left.view()?;
        let mut read = left.bytes(&seen);
        for (byte, value) in data.iter().enumerate() {
            left.devices[index].poke(slba * BLOCK as u64 + byte as u64, *value);
            let at = |error| format!("in command {}, {} bytes: {error}", tick - start, byte + 1);
            labels[index] = Label::open(&mut left.devices[index], &identity(index), Mode::ReadOnly)
                .map_err(|error| at(format!("it does not open: {error}")))?;
            let view = view(&labels).map_err(at)?;
            if matches!(change, Change::Zero { .. }) || view != seen {
                // A write of a label changes no data, so it is looked at once in each state.
                read = left.bytes(&view);
            }
            crashes.add(promise.check(&view, &read).map_err(at)?);
            seen = view;
            if byte % 211 == 0 {
                promise.check_recovery(&left).map_err(at)?;
            }
        }
    }
    Ok(crashes)
}
