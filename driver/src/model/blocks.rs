//! Commands of the NVM Command Set that are more than a plain read or write (NVM Command Set 1.1, 3.3): those with
//! SGLs, metadata or a simulated cache, and all that are optional.
//!
//! Where bytes cannot go straight between the host's memory and the store they pass through buffers here, whole
//! commands at a time.

use std::io;

use zerocopy::FromBytes;

use super::board::Board;
use super::cache::Content;
use super::config::ModelConfig;
use super::io_config::{DatasetManagementLimits, IoCommandsConfig, MetadataConfig};
use super::iommu::Reach;
use super::media::{BlockBuffers, Media};
use super::namespace::Namespace;
use super::protection::{Protection, Tags};
use super::transfer::{Buffers, Lengths, Transfer, permanent};
use crate::dma::Access;
use crate::spec::command::{DatasetManagementRange, DirectiveType, Fuse, NvmOpcode, Sqe};
use crate::spec::protection::ProtectionTuple;
use crate::spec::status::{Status, StatusCode};

/// Bytes of data that Verify looks at in one go.
const VERIFIED: usize = 1 << 20;

/// A command, and what it takes to execute it.
pub(super) struct Io<'a, 'r> {
    pub(super) reach: &'a Reach<'r>,
    pub(super) board: &'a Board,
    pub(super) transfer: &'a mut Transfer,
    pub(super) sqid: u16,
    pub(super) sqe: &'a Sqe,
}

/// What a namespace is like where it is not plain.
pub(super) struct Blocks {
    commands: IoCommandsConfig,
    metadata: MetadataConfig,
    protection: Option<Protection>,
    /// Blocks on their way, kept from command to command.
    buffer: Buffer,
    /// The same blocks as the media have them, for Compare.
    stored: Buffer,
}

/// Data and metadata of the same blocks.
#[derive(Default)]
struct Buffer {
    data: Vec<u8>,
    metadata: Vec<u8>,
    /// Both, block by block, as an extended LBA has them.
    interleaved: Vec<u8>,
}

/// The blocks that a command names, and how they are transferred.
#[derive(Clone, Copy)]
struct Named {
    slba: u64,
    nlb: u64,
    tags: Tags,
    /// Whether metadata is all the controller's own: PRACT, and there is nothing but the tuple.
    hidden: bool,
}

impl Blocks {
    pub(super) fn new(config: &ModelConfig) -> Self {
        Self {
            commands: config.io_commands.clone(),
            metadata: config.metadata,
            protection: Protection::new(&config.metadata),
            buffer: Buffer::default(),
            stored: Buffer::default(),
        }
    }

    pub(super) fn metadata(&self) -> &MetadataConfig {
        &self.metadata
    }

    /// After a format.
    pub(super) fn set_metadata(&mut self, metadata: MetadataConfig) {
        self.protection = Protection::new(&metadata);
        self.metadata = metadata;
    }
}

impl Buffer {
    fn resize(&mut self, nlb: u64, block: usize, ms: usize) {
        self.data.resize(nlb as usize * block, 0);
        self.metadata.resize(nlb as usize * ms, 0);
    }

    fn blocks(&mut self) -> BlockBuffers<'_> {
        BlockBuffers { data: &mut self.data, metadata: &mut self.metadata }
    }
}

impl Namespace {
    /// Executes what is no plain read or write.
    #[cold]
    #[inline(never)]
    pub(super) fn execute_other(&mut self, io: Io<'_, '_>) -> Result<(), Status> {
        if io.sqe.fuse() != Fuse::NORMAL {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        if self.reservations.is_held() {
            self.check_reservation(io.sqe.nvm_opcode())?;
        }
        let commands = &self.blocks.commands;
        match io.sqe.nvm_opcode() {
            NvmOpcode::RESERVATION_REGISTER
            | NvmOpcode::RESERVATION_REPORT
            | NvmOpcode::RESERVATION_ACQUIRE
            | NvmOpcode::RESERVATION_RELEASE
                if commands.reservations =>
            {
                self.reserve(io)
            }
            NvmOpcode::FLUSH => self.flush_command(&io),
            NvmOpcode::READ | NvmOpcode::WRITE if self.is_moved(io.sqe) => self.move_blocks(io),
            NvmOpcode::READ => self.read_blocks(io),
            NvmOpcode::WRITE => self.write_blocks(io),
            NvmOpcode::COMPARE if commands.compare => self.compare(io),
            NvmOpcode::VERIFY if commands.verify => self.verify(&io),
            NvmOpcode::WRITE_ZEROES if commands.write_zeroes => self.write_zeroes(&io),
            NvmOpcode::DATASET_MANAGEMENT if commands.dataset_management => self.dataset_management(io),
            _ => Err(permanent(StatusCode::INVALID_COMMAND_OPCODE)),
        }
    }

    /// Flush (NVM Express Base 2.1, 7.2).
    fn flush_command(&mut self, io: &Io<'_, '_>) -> Result<(), Status> {
        io.board.counters.flushes.add(1);
        self.flush(io.board)
    }

    /// Read (NVM Command Set 1.1, 3.3.4).
    fn read_blocks(&mut self, io: Io<'_, '_>) -> Result<(), Status> {
        io.board.counters.reads.add(1);
        let sqe = io.sqe;
        let (named, lengths) = self.named(sqe)?;
        let Named { slba, nlb, tags, .. } = named;
        let failed = |_| StatusCode::UNRECOVERED_READ_ERROR.status();
        let buffers = io.transfer.buffers(io.reach, io.board, io.sqid, sqe, lengths, Access::DEVICE_WRITES)?;
        io.board.counters.read_bytes.add(lengths.data);
        if sqe.fua() {
            self.store.settle(slba..slba + nlb).map_err(failed)?;
            self.persist(io.board)?;
        }
        if let Some(pieces) = buffers.data.whole().filter(|_| self.store.is_plain()) {
            return self.store.read(slba << self.lbads, pieces).map_err(failed);
        }
        if self.store.is_null() {
            return Ok(());
        }
        let (block, ms) = (self.store.block, self.store.ms);
        let Blocks { buffer, protection, metadata, .. } = &mut self.blocks;
        buffer.resize(nlb, block, ms);
        self.store.read_blocks(slba, buffer.blocks()).map_err(failed)?;
        if let Some(protection) = protection {
            protection.check(tags, 0, (&buffer.data, block), (&buffer.metadata, ms)).map_err(StatusCode::status)?;
        }
        let mut data = buffers.data.writer();
        if named.hidden || ms == 0 {
            data.write(&buffer.data);
        } else if metadata.extended {
            for (bytes, beside) in buffer.data.chunks_exact(block).zip(buffer.metadata.chunks_exact(ms)) {
                data.write(bytes);
                data.write(beside);
            }
        } else {
            data.write(&buffer.data);
            buffers.metadata.writer().write(&buffer.metadata);
        }
        Ok(())
    }

    /// Write (NVM Command Set 1.1, 3.3.6).
    fn write_blocks(&mut self, io: Io<'_, '_>) -> Result<(), Status> {
        io.board.counters.writes.add(1);
        let sqe = io.sqe;
        let (named, lengths) = self.named(sqe)?;
        let Named { slba, nlb, tags, .. } = named;
        if sqe.dtype() != DirectiveType::IDENTIFY {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        self.check_writable()?;
        let failed = |_| StatusCode::WRITE_FAULT.status();
        let durable = sqe.fua() || !self.cached;
        let torn = io.transfer.is_torn();
        let buffers = io.transfer.buffers(io.reach, io.board, io.sqid, sqe, lengths, Access::DEVICE_READS)?;
        io.board.counters.write_bytes.add(lengths.data);
        if let Some(pieces) = buffers.data.whole().filter(|_| self.store.is_plain()) {
            self.store.write(slba << self.lbads, pieces).map_err(failed)?;
        } else {
            let (block, ms) = (self.store.block, self.store.ms);
            if torn {
                self.blocks.begin_with_stored(&self.store, named).map_err(failed)?;
            }
            self.blocks.collect(&buffers, named, (block, ms));
            let Blocks { buffer, protection, .. } = &mut self.blocks;
            if let Some(protection) = protection {
                if tags.pract() {
                    protection.insert(tags, (&buffer.data, block), (&mut buffer.metadata, ms));
                } else {
                    let checked = protection.check(tags, 0, (&buffer.data, block), (&buffer.metadata, ms));
                    checked.map_err(StatusCode::status)?;
                }
            }
            let content =
                Content::Written { data: buffer.data.as_slice().into(), metadata: buffer.metadata.as_slice().into() };
            self.store.put(slba, nlb, content, durable).map_err(failed)?;
        }
        if durable { self.persist(io.board) } else { Ok(()) }
    }

    /// Compare (NVM Command Set 1.1, 3.3.1). Protection information is checked on both sides and not compared.
    fn compare(&mut self, io: Io<'_, '_>) -> Result<(), Status> {
        io.board.counters.compares.add(1);
        let (named, lengths) = self.named(io.sqe)?;
        self.refuse_pract(named.tags)?;
        let buffers = io.transfer.buffers(io.reach, io.board, io.sqid, io.sqe, lengths, Access::DEVICE_READS)?;
        if self.store.is_null() {
            return Ok(());
        }
        let Named { slba, nlb, tags, .. } = named;
        let (block, ms) = (self.store.block, self.store.ms);
        self.blocks.collect(&buffers, named, (block, ms));
        let Blocks { buffer, stored, protection, .. } = &mut self.blocks;
        stored.resize(nlb, block, ms);
        let read = self.store.read_blocks(slba, stored.blocks());
        read.map_err(|_| StatusCode::UNRECOVERED_READ_ERROR.status())?;
        if let Some(protection) = protection {
            for side in [&mut *buffer, &mut *stored] {
                let checked = protection.check(tags, 0, (&side.data, block), (&side.metadata, ms));
                checked.map_err(StatusCode::status)?;
                for metadata in side.metadata.chunks_exact_mut(ms) {
                    metadata[protection.tuple_range()].fill(0);
                }
            }
        }
        let equal = buffer.data == stored.data && buffer.metadata == stored.metadata;
        if equal { Ok(()) } else { Err(permanent(StatusCode::COMPARE_FAILURE)) }
    }

    /// Verify (NVM Command Set 1.1, 3.3.5).
    fn verify(&mut self, io: &Io<'_, '_>) -> Result<(), Status> {
        io.board.counters.verifies.add(1);
        let named = self.named_without_data(io.sqe)?;
        self.refuse_pract(named.tags)?;
        let Named { slba, nlb, tags, .. } = named;
        if self.store.is_null() {
            return Ok(());
        }
        let (block, ms) = (self.store.block, self.store.ms);
        let step = (VERIFIED / block) as u64;
        let Blocks { buffer, protection, .. } = &mut self.blocks;
        for first in (0..nlb).step_by(step as usize) {
            buffer.resize(step.min(nlb - first), block, ms);
            let read = self.store.read_blocks(slba + first, buffer.blocks());
            read.map_err(|_| StatusCode::UNRECOVERED_READ_ERROR.status())?;
            if let Some(protection) = protection {
                let checked = protection.check(tags, first as usize, (&buffer.data, block), (&buffer.metadata, ms));
                checked.map_err(StatusCode::status)?;
            }
        }
        Ok(())
    }

    /// Write Zeroes (NVM Command Set 1.1, 3.3.8). Deallocated or not, the blocks read as zeroes.
    fn write_zeroes(&mut self, io: &Io<'_, '_>) -> Result<(), Status> {
        io.board.counters.write_zeroes.add(1);
        let sqe = io.sqe;
        let Named { slba, nlb, tags, .. } = self.named_without_data(sqe)?;
        // ONCS has no Namespace Zeroes.
        if sqe.nsz() || sqe.deac() && !self.blocks.commands.write_zeroes_deallocate {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        self.check_writable()?;
        let (block, ms) = (self.store.block, self.store.ms);
        let mut metadata = vec![0; nlb as usize * ms];
        if let Some(protection) = &self.blocks.protection {
            // There is nothing yet that could be checked.
            if tags.checks() {
                return Err(permanent(StatusCode::INVALID_PROTECTION_INFORMATION));
            }
            // Without PRACT protection information is zero like the rest.
            if tags.pract() {
                protection.insert_over_zeroes(tags, block, (&mut metadata, ms));
            }
        }
        let durable = sqe.fua() || !self.cached;
        let content = Content::Zeroes { metadata: metadata.into() };
        self.store.put(slba, nlb, content, durable).map_err(|_| StatusCode::WRITE_FAULT.status())?;
        if durable { self.persist(io.board) } else { Ok(()) }
    }

    /// Dataset Management (NVM Command Set 1.1, 3.3.3). All but deallocation are hints, of which nothing comes.
    fn dataset_management(&mut self, io: Io<'_, '_>) -> Result<(), Status> {
        io.board.counters.dataset_managements.add(1);
        let sqe = io.sqe;
        if sqe.ad() {
            self.check_writable()?;
        }
        let count = sqe.nr().count() as usize;
        let mut bytes = vec![0; count * size_of::<DatasetManagementRange>()];
        let lengths = Lengths { data: bytes.len() as u64, metadata: 0 };
        let buffers = io.transfer.buffers(io.reach, io.board, io.sqid, sqe, lengths, Access::DEVICE_READS)?;
        buffers.data.gather(&mut bytes);
        let mut ranges = Vec::with_capacity(count);
        for bytes in bytes.chunks_exact(size_of::<DatasetManagementRange>()) {
            let range = DatasetManagementRange::read_from_bytes(bytes).map_err(|_| StatusCode::INTERNAL_ERROR.status());
            ranges.push(range.map(|range| (range.slba, u64::from(range.lengthlb)))?);
        }
        if let Some(limits) = &self.blocks.commands.dataset_management_limits {
            limit(limits, &mut ranges)?;
        }
        for (slba, nlb) in &ranges {
            if *nlb > 0 {
                self.check_lbas(*slba, *nlb)?;
            }
        }
        if !sqe.ad() {
            return Ok(());
        }
        for (slba, nlb) in ranges {
            if nlb > 0 {
                let put = self.store.put(slba, nlb, Content::Deallocated, !self.cached);
                put.map_err(|_| StatusCode::WRITE_FAULT.status())?;
            }
        }
        if self.cached { Ok(()) } else { self.persist(io.board) }
    }

    /// The blocks that a command with data names, and the bytes that it moves.
    fn named(&self, sqe: &Sqe) -> Result<(Named, Lengths), Status> {
        let nlb = u64::from(sqe.nlb().count());
        let tags = Tags::of(sqe);
        let hidden = self.hidden(tags);
        let (data, metadata) = (nlb << self.lbads, if hidden { 0 } else { nlb * self.store.ms as u64 });
        let lengths = if self.blocks.metadata.extended {
            Lengths { data: data + metadata, metadata: 0 }
        } else {
            Lengths { data, metadata }
        };
        // MDTS counts metadata where it lies with the data (Base 2.1, 5.1.13.2.1, CTRATT.MEM being 0).
        if lengths.data > self.max_transfer {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        Ok((self.named_without_data(sqe)?, lengths))
    }

    /// The blocks that a command names, which transfers none of them.
    fn named_without_data(&self, sqe: &Sqe) -> Result<Named, Status> {
        let (slba, nlb) = (sqe.slba(), u64::from(sqe.nlb().count()));
        self.check_lbas(slba, nlb)?;
        if let Some(protection) = &self.blocks.protection {
            protection.accept(sqe)?;
        }
        let tags = Tags::of(sqe);
        Ok(Named { slba, nlb, tags, hidden: self.hidden(tags) })
    }

    fn hidden(&self, tags: Tags) -> bool {
        self.blocks.protection.is_some() && tags.pract() && self.store.ms == ProtectionTuple::LENGTH
    }

    fn check_writable(&self) -> Result<(), Status> {
        if self.store.writable() { Ok(()) } else { Err(permanent(StatusCode::NAMESPACE_IS_WRITE_PROTECTED)) }
    }

    /// There is nothing to insert or strip where nothing is transferred to or from the media.
    fn refuse_pract(&self, tags: Tags) -> Result<(), Status> {
        let refused = self.blocks.protection.is_some() && tags.pract();
        if refused { Err(permanent(StatusCode::INVALID_PROTECTION_INFORMATION)) } else { Ok(()) }
    }
}

impl Blocks {
    /// A fault: what does not come is to stay as it is stored.
    #[cold]
    fn begin_with_stored(&mut self, store: &Media, named: Named) -> io::Result<()> {
        let (block, ms) = (store.block, store.ms);
        let Buffer { data, metadata, interleaved } = &mut self.buffer;
        data.resize(named.nlb as usize * block, 0);
        metadata.resize(named.nlb as usize * ms, 0);
        store.read_blocks(named.slba, BlockBuffers { data, metadata })?;
        interleaved.clear();
        if self.metadata.extended && ms > 0 {
            for (data, metadata) in data.chunks_exact(block).zip(metadata.chunks_exact(ms)) {
                interleaved.extend_from_slice(data);
                interleaved.extend_from_slice(metadata);
            }
        }
        Ok(())
    }

    /// Fetches the blocks that the host sends. Metadata that it does not send is zero.
    fn collect(&mut self, buffers: &Buffers<'_>, named: Named, (block, ms): (usize, usize)) {
        let buffer = &mut self.buffer;
        buffer.resize(named.nlb, block, ms);
        if named.hidden || ms == 0 {
            buffers.data.gather(&mut buffer.data);
            buffer.metadata.fill(0);
        } else if self.metadata.extended {
            buffer.interleaved.resize(named.nlb as usize * (block + ms), 0);
            buffers.data.gather(&mut buffer.interleaved);
            let places = buffer.data.chunks_exact_mut(block).zip(buffer.metadata.chunks_exact_mut(ms));
            for (both, (data, metadata)) in buffer.interleaved.chunks_exact(block + ms).zip(places) {
                data.copy_from_slice(&both[..block]);
                metadata.copy_from_slice(&both[block..]);
            }
        } else {
            buffers.data.gather(&mut buffer.data);
            buffers.metadata.gather(&mut buffer.metadata);
        }
    }
}

/// Refuses what is beyond the limits, or leaves it out of `ranges` (NVM Command Set 1.1, 3.3.3).
fn limit(limits: &DatasetManagementLimits, ranges: &mut Vec<(u64, u64)>) -> Result<(), Status> {
    let DatasetManagementLimits { dmrl, dmrsl, dmsl, strict } = *limits;
    if strict {
        let total: u64 = ranges.iter().map(|(_, nlb)| nlb).sum();
        let longest = ranges.iter().map(|(_, nlb)| *nlb).max().unwrap_or(0);
        if ranges.len() > usize::from(dmrl) || longest > dmrsl.into() || total > dmsl {
            return Err(permanent(StatusCode::COMMAND_SIZE_LIMIT_EXCEEDED));
        }
        return Ok(());
    }
    ranges.truncate(dmrl.into());
    let mut left = dmsl;
    for (_, nlb) in ranges {
        *nlb = (*nlb).min(dmrsl.into()).min(left);
        left -= *nlb;
    }
    Ok(())
}
