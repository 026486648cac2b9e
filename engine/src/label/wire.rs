//! The label as it lies on a namespace: a header, entries of segments, their extents, the members of striped sets. Little
//! endian, version 1; `docs/label.md` has it to the byte.
//!
//! The first 44 bytes of the header are the same in every version: an older Tentpeg can tell a newer label from a torn
//! one. Nothing that is read here is believed before [`Contents::check`] has seen it.

use std::mem::size_of;

use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::contents::{Contents, MAX_SEGMENTS};
use super::entry::{Durability, MEMBERS, NAME_BYTES, OWNER_NAME_BYTES, Pending, Record, SegmentEntry, Stripe};
use super::place::{Geometry, SLOT_BYTES};
use super::{BlockExtent, Identity, Malformed, Owner};

/// What a slot begins with.
pub(super) const MAGIC: [u8; 8] = *b"TENTPEG\0";
/// The version that is written here.
const VERSION: u32 = 1;
/// The incompatible flags that are known here: none yet.
const INCOMPATIBLE: u64 = 0;
/// Bit of the flags: tests may overwrite the device.
const MAY_BE_OVERWRITTEN: u32 = 1 << 0;
/// Where the CRC is, as four bytes.
const CRC: std::ops::Range<usize> = 40..44;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawExtent {
    slba: U64,
    blocks: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    length: U32,
    incompatible: U64,
    compatible: U64,
    sequence: U64,
    crc: U32,
    // The same in every version up to here.
    flags: U32,
    device: [u8; 16],
    nguid: [u8; 16],
    eui64: [u8; 8],
    uuid: [u8; 16],
    nsze: U64,
    lbads: u8,
    pit: u8,
    ms: U16,
    entries: U32,
    extents: U32,
    members: U32,
    owner: [u8; 16],
    epoch: U64,
    scratch: RawExtent,
    alignment: U64,
    owner_name_bytes: u8,
    owner_name: [u8; OWNER_NAME_BYTES],
    reserved: [u8; 272],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    uuid: [u8; 16],
    set: [u8; 16],
    generation: U64,
    capacity: U64,
    chunk: U64,
    extents: U32,
    index: U16,
    members: U16,
    state: u8,
    durability: u8,
    name_bytes: u8,
    reserved: [u8; 5],
    name: [u8; NAME_BYTES],
}

const _: () = assert!(size_of::<RawHeader>() == 512);
const _: () = assert!(size_of::<RawEntry>() == 192);
const _: () = assert!(size_of::<RawExtent>() == 16);
/// Every segment can have something pending beside it, and each of both has room for a few extents.
const _: () = assert!(512 + MAX_SEGMENTS * 192 * 2 + MAX_SEGMENTS * 2 * 16 * 3 < SLOT_BYTES);

/// [`RawEntry::state`].
mod state {
    pub(super) const COMMITTED: u8 = 0;
    pub(super) const PENDING: u8 = 1;
    pub(super) const PENDING_DELETE: u8 = 2;
}

/// Bytes of the smallest label.
pub(super) const HEADER_BYTES: usize = size_of::<RawHeader>();

/// Why bytes are no label that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undecodable {
    Malformed(Malformed),
    Newer { version: u32, flags: u64 },
}

impl<E: Into<Malformed>> From<E> for Undecodable {
    fn from(error: E) -> Self {
        Self::Malformed(error.into())
    }
}

fn wrong(field: &'static str, value: impl Into<u64>, must: &'static str) -> Malformed {
    Malformed::Field { field, value: value.into(), must }
}

/// The length that a slot says it has, when its first bytes are those of a label; of the rest nothing is looked at.
pub(super) fn stated_length(first: &[u8]) -> Option<Result<usize, Malformed>> {
    let (header, _) = RawHeader::read_from_prefix(first).ok()?;
    (header.magic == MAGIC).then(|| {
        let length = u64::from(header.length.get());
        match usize::try_from(length) {
            Ok(length) if (HEADER_BYTES..=SLOT_BYTES).contains(&length) => Ok(length),
            _ => Err(Malformed::Length { length, least: HEADER_BYTES as u64, most: SLOT_BYTES as u64 }),
        }
    })
}

/// CRC-32C of a label in which the CRC itself is zero.
fn crc(bytes: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&bytes[..CRC.start]);
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &[0; 4]), &bytes[CRC.end..])
}

/// Reads a label of exactly these bytes.
pub(super) fn decode(bytes: &[u8]) -> Result<Contents, Undecodable> {
    let most = SLOT_BYTES as u64;
    let length = bytes.len() as u64;
    let short = Malformed::Length { length, least: HEADER_BYTES as u64, most };
    let (header, tables) = RawHeader::ref_from_prefix(bytes).map_err(|_| short)?;
    let (stored, computed) = (header.crc.get(), crc(bytes));
    if stored != computed {
        return Err(Malformed::Crc { stored, computed }.into());
    }
    let (version, flags) = (header.version.get(), header.incompatible.get() & !INCOMPATIBLE);
    if version > VERSION || flags != 0 {
        return Err(Undecodable::Newer { version, flags });
    }
    if version == 0 {
        return Err(wrong("version", version, "at least 1").into());
    }
    let counts =
        [(&header.entries, size_of::<RawEntry>()), (&header.extents, size_of::<RawExtent>()), (&header.members, 16)];
    // At most 2^32 times 192, three times: it cannot overflow.
    let needed =
        HEADER_BYTES as u64 + counts.iter().map(|(count, size)| u64::from(count.get()) * *size as u64).sum::<u64>();
    // What is behind belongs to compatible flags that are not known here.
    let longest = if header.compatible.get() == 0 { needed } else { most };
    if needed > most || !(needed..=longest).contains(&length) {
        return Err(Malformed::Length { length, least: needed, most: longest.min(most) }.into());
    }
    let mut tables = Tables::split(tables, header).ok_or(Malformed::Length { length, least: needed, most })?;
    let contents = Contents {
        sequence: header.sequence.get(),
        device: Uuid::from_bytes(header.device),
        namespace: Identity {
            nguid: header.nguid,
            eui64: header.eui64,
            uuid: Uuid::from_bytes(header.uuid),
            ms: header.ms.get(),
            pit: header.pit,
        },
        geometry: Geometry::new(header.nsze.get(), header.lbads)
            .ok_or_else(|| wrong("NSZE", header.nsze, "more than 2 MiB of blocks of 512 to 65536 bytes"))?,
        owner: Owner {
            node: Uuid::from_bytes(header.owner),
            name: name(&header.owner_name, header.owner_name_bytes)?,
            epoch: header.epoch.get(),
        },
        may_be_overwritten: header.flags.get() & MAY_BE_OVERWRITTEN != 0,
        alignment: header.alignment.get(),
        scratch: match (header.scratch.slba.get(), header.scratch.blocks.get()) {
            (0, 0) => None,
            (slba, blocks) => Some(extent(slba, blocks)?),
        },
        records: tables.records()?,
    };
    if header.flags.get() & !MAY_BE_OVERWRITTEN != 0 {
        return Err(wrong("flags", header.flags, "0 or 1").into());
    }
    zero("reserved bytes of the header", &header.reserved)?;
    contents.check()?;
    Ok(contents)
}

fn extent(slba: u64, blocks: u64) -> Result<BlockExtent, Malformed> {
    BlockExtent::new(slba, blocks)
        .ok_or_else(|| wrong("blocks of an extent", blocks, "at least 1, and end before block 2^64"))
}

fn zero(field: &'static str, bytes: &[u8]) -> Result<(), Malformed> {
    match bytes.iter().find(|byte| **byte != 0) {
        Some(byte) => Err(wrong(field, *byte, "zeroes")),
        None => Ok(()),
    }
}

/// The first `bytes` bytes of a field as text; the others are zero.
fn name(field: &[u8], bytes: u8) -> Result<String, Malformed> {
    let (name, rest) =
        field.split_at_checked(bytes.into()).ok_or_else(|| wrong("length of a name", bytes, "at most its field"))?;
    zero("bytes behind a name", rest)?;
    String::from_utf8(name.to_vec()).map_err(|error| Malformed::NotUtf8 { bytes: error.into_bytes() })
}

/// What follows the header, each taken from its front.
struct Tables<'a> {
    entries: &'a [RawEntry],
    extents: &'a [RawExtent],
    members: &'a [[u8; 16]],
}

impl<'a> Tables<'a> {
    fn split(tables: &'a [u8], header: &RawHeader) -> Option<Self> {
        let count = |count: U32| usize::try_from(count.get()).ok();
        let (entries, rest) = <[RawEntry]>::ref_from_prefix_with_elems(tables, count(header.entries)?).ok()?;
        let (extents, rest) = <[RawExtent]>::ref_from_prefix_with_elems(rest, count(header.extents)?).ok()?;
        let (members, _) = <[[u8; 16]]>::ref_from_prefix_with_elems(rest, count(header.members)?).ok()?;
        Some(Self { entries, extents, members })
    }

    fn records(&mut self) -> Result<Vec<Record>, Malformed> {
        let mut records: Vec<Record> = Vec::new();
        for raw in self.entries {
            zero("reserved bytes of an entry", &raw.reserved)?;
            let uuid = Uuid::from_bytes(raw.uuid);
            // What is pending follows what is committed.
            let beside = records.last_mut().filter(|last| {
                last.pending.is_none() && last.committed.as_ref().is_some_and(|committed| committed.uuid == uuid)
            });
            match (raw.state, beside) {
                (state::COMMITTED, _) => records.push(Record::committed(self.entry(raw)?)),
                (state::PENDING, Some(record)) => record.pending = Some(Pending::Next(self.entry(raw)?)),
                (state::PENDING, None) => {
                    records.push(Record { committed: None, pending: Some(Pending::Next(self.entry(raw)?)) });
                }
                (state::PENDING_DELETE, Some(record)) => {
                    zero("bytes of a deletion", &raw.as_bytes()[16..64])?;
                    zero("bytes of a deletion", &raw.as_bytes()[65..])?;
                    record.pending = Some(Pending::Delete);
                }
                (state::PENDING_DELETE, None) => {
                    return Err(wrong("state of an entry", raw.state, "beside what it deletes"));
                }
                (other, _) => return Err(wrong("state of an entry", other, "0, 1 or 2")),
            }
        }
        if self.extents.is_empty() && self.members.is_empty() {
            return Ok(records);
        }
        let left = (self.extents.len() + self.members.len()) as u64;
        Err(wrong("extents and members of no segment", left, "0"))
    }

    fn entry(&mut self, raw: &RawEntry) -> Result<SegmentEntry, Malformed> {
        let many = || wrong("extents or members of a segment", raw.extents.get(), "as many as are left, or fewer");
        let count = usize::try_from(raw.extents.get()).map_err(|_| many())?;
        let extents = self.extents.split_off(..count).ok_or_else(many)?;
        let members = self.members.split_off(..usize::from(raw.members.get())).ok_or_else(many)?;
        let stripe = if members.is_empty() {
            let unset = raw.set == [0; 16] && raw.chunk.get() == 0 && raw.index.get() == 0;
            if !unset {
                return Err(wrong("members of a set", 0_u64, "2 to 256, or there is no set"));
            }
            None
        } else {
            Some(Stripe {
                set: Uuid::from_bytes(raw.set),
                index: raw.index.get(),
                chunk: raw.chunk.get(),
                members: members.iter().copied().map(Uuid::from_bytes).collect(),
            })
        };
        Ok(SegmentEntry {
            name: name(&raw.name, raw.name_bytes)?,
            uuid: Uuid::from_bytes(raw.uuid),
            generation: raw.generation.get(),
            durability: match raw.durability {
                0 => Durability::None,
                1 => Durability::Fua,
                2 => Durability::Flush,
                other => return Err(wrong("durability", other, "0, 1 or 2")),
            },
            capacity: raw.capacity.get(),
            extents: extents.iter().map(|raw| extent(raw.slba.get(), raw.blocks.get())).collect::<Result<_, _>>()?,
            stripe,
        })
    }
}

/// The bytes of a label that [`Contents::check`] has passed; none when they are more than a slot has, with how many they
/// would be.
pub(super) fn encode(contents: &Contents) -> Result<Vec<u8>, u64> {
    let (mut entries, mut extents, mut members) = (Vec::new(), Vec::new(), Vec::new());
    for record in &contents.records {
        let pending = match &record.pending {
            Some(Pending::Next(next)) => Some(raw_entry(next, state::PENDING)),
            Some(Pending::Delete) => record.committed.as_ref().map(|committed| {
                let mut raw = RawEntry::new_zeroed();
                raw.uuid = committed.uuid.into_bytes();
                raw.state = state::PENDING_DELETE;
                raw
            }),
            None => None,
        };
        entries.extend(record.committed.as_ref().map(|committed| raw_entry(committed, state::COMMITTED)));
        entries.extend(pending);
        for entry in record.entries() {
            extents.extend(entry.extents.iter().map(|extent| raw_extent(*extent)));
            members.extend(entry.stripe.iter().flat_map(|stripe| &stripe.members).map(|member| member.into_bytes()));
        }
    }
    let tables = [entries.as_bytes(), extents.as_bytes(), members.as_bytes()];
    let length = HEADER_BYTES + tables.iter().map(|table| table.len()).sum::<usize>();
    if length > SLOT_BYTES {
        return Err(length as u64);
    }
    // Not more than SLOT_BYTES, so they fit.
    let counts = [entries.len(), extents.len(), members.len(), length].map(|count| U32::new(count as u32));
    let header = header(contents, counts);
    let mut bytes = [&[header.as_bytes()], &tables[..]].concat().concat();
    let crc = crc(&bytes);
    bytes[CRC].copy_from_slice(&crc.to_le_bytes());
    Ok(bytes)
}

fn header(contents: &Contents, [entries, extents, members, length]: [U32; 4]) -> RawHeader {
    let mut owner_name = [0; OWNER_NAME_BYTES];
    let name = contents.owner.name.as_bytes();
    owner_name[..name.len()].copy_from_slice(name);
    RawHeader {
        magic: MAGIC,
        version: U32::new(VERSION),
        length,
        incompatible: U64::new(0),
        compatible: U64::new(0),
        sequence: U64::new(contents.sequence),
        crc: U32::new(0),
        flags: U32::new(if contents.may_be_overwritten { MAY_BE_OVERWRITTEN } else { 0 }),
        device: contents.device.into_bytes(),
        nguid: contents.namespace.nguid,
        eui64: contents.namespace.eui64,
        uuid: contents.namespace.uuid.into_bytes(),
        nsze: U64::new(contents.geometry.blocks()),
        lbads: contents.geometry.lbads(),
        pit: contents.namespace.pit,
        ms: U16::new(contents.namespace.ms),
        entries,
        extents,
        members,
        owner: contents.owner.node.into_bytes(),
        epoch: U64::new(contents.owner.epoch),
        scratch: contents.scratch.map_or_else(RawExtent::new_zeroed, raw_extent),
        alignment: U64::new(contents.alignment),
        owner_name_bytes: name.len() as u8,
        owner_name,
        reserved: [0; 272],
    }
}

fn raw_extent(extent: BlockExtent) -> RawExtent {
    RawExtent { slba: U64::new(extent.slba()), blocks: U64::new(extent.blocks()) }
}

fn raw_entry(entry: &SegmentEntry, state: u8) -> RawEntry {
    let mut name = [0; NAME_BYTES];
    name[..entry.name.len()].copy_from_slice(entry.name.as_bytes());
    let stripe = entry.stripe.as_ref();
    RawEntry {
        uuid: entry.uuid.into_bytes(),
        set: stripe.map_or(Uuid::nil(), |stripe| stripe.set).into_bytes(),
        generation: U64::new(entry.generation),
        capacity: U64::new(entry.capacity),
        chunk: U64::new(stripe.map_or(0, |stripe| stripe.chunk)),
        // The extents are at most SLOT_BYTES / 16 and the members in MEMBERS where it is encoded at all.
        extents: U32::new(entry.extents.len() as u32),
        index: U16::new(stripe.map_or(0, |stripe| stripe.index)),
        members: U16::new(stripe.map_or(0, |stripe| stripe.members.len()) as u16),
        state,
        durability: match entry.durability {
            Durability::None => 0,
            Durability::Fua => 1,
            Durability::Flush => 2,
        },
        name_bytes: entry.name.len() as u8,
        reserved: [0; 5],
        name,
    }
}

const _: () = assert!(*MEMBERS.end() <= u16::MAX as usize);

#[cfg(test)]
mod tests;
