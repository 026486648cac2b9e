//! Namespaces of many formats: metadata, and protection information that is computed here anew.

use std::time::Duration;

use crc::{CRC_16_T10_DIF, Crc};
use tentpeg_driver::controller::{FormatSettings, Namespace};
use tentpeg_driver::dma::{HostMemory, Region};
use tentpeg_driver::queue::{Extent, IoCommand, MetadataFormat, MetadataPlacement, Protection, ProtectionFormat};
use tentpeg_driver::queue::{ProtectionType, QueuePair};
use tentpeg_driver::spec::command::SecureEraseSettings;
use tentpeg_driver::spec::protection::ProtectionTuple;
use tentpeg_driver::spec::status::{Status, StatusCode};
use tentpeg_engine::OpCode;
use zerocopy::{FromBytes, IntoBytes};

use super::Special;
use crate::device_tests::bench::{bytes_of, fill, holds};
use crate::device_tests::{Bench, Ending, Verdict, ensure};
use crate::guest::drives::{FORMATS, Format};

static GUARD: Crc<u16> = Crc::<u16>::new(&CRC_16_T10_DIF);

/// Where blocks are written, and how many.
const SLBA: u64 = 7;
const BLOCKS: usize = 5;

/// How long a namespace of a few MiB takes to be formatted, at the most.
const FORMATTING: Duration = Duration::from_secs(60);

/// Blocks in memory, as a namespace's format has them.
struct Blocks {
    format: Format,
    data: Region<HostMemory>,
    /// The metadata, where it has a buffer of its own.
    metadata: Option<Region<HostMemory>>,
}

/// One block as a caller sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    data: Vec<u8>,
    metadata: Vec<u8>,
}

impl Blocks {
    fn new(bench: &Bench, format: Format) -> Result<Self, Ending> {
        let stride = u64::from(format.lba_size) + u64::from(format.metadata);
        let data = bench.memory(BLOCKS as u64 * stride)?;
        let separate = format.metadata > 0 && !format.extended;
        let metadata = separate.then(|| bench.memory(BLOCKS as u64 * u64::from(format.metadata))).transpose()?;
        Ok(Self { format, data, metadata })
    }

    /// Bytes from one block's data to the next, where metadata is transferred or where it is not.
    fn stride(&self, transferred: bool) -> usize {
        let between = if self.format.extended && transferred { self.format.metadata } else { 0 };
        self.format.lba_size as usize + usize::from(between)
    }

    fn put(&self, blocks: &[Block]) {
        let (lba, stride) = (self.format.lba_size as usize, self.stride(true));
        for (index, block) in blocks.iter().enumerate() {
            self.data.view().write(index * stride, &block.data);
            match &self.metadata {
                Some(metadata) => metadata.view().write(index * block.metadata.len(), &block.metadata),
                None => self.data.view().write(index * stride + lba, &block.metadata),
            }
        }
    }

    fn take(&self) -> Vec<Block> {
        let (lba, stride) = (self.format.lba_size as usize, self.stride(true));
        let block = |index: usize| {
            let mut block = Block { data: vec![0; lba], metadata: vec![0; self.format.metadata.into()] };
            self.data.view().read(index * stride, &mut block.data);
            match &self.metadata {
                Some(metadata) => metadata.view().read(index * block.metadata.len(), &mut block.metadata),
                None => self.data.view().read(index * stride + lba, &mut block.metadata),
            }
            block
        };
        (0..BLOCKS).map(block).collect()
    }

    /// Nothing of before is left.
    fn forget(&self) {
        self.data.view().fill(0xEE);
        if let Some(metadata) = &self.metadata {
            metadata.view().fill(0xEE);
        }
    }

    /// One command over all of them, to its end. `transferred` is whether metadata goes with it.
    fn command(
        &self,
        bench: &Bench,
        pair: &mut QueuePair<u32>,
        opcode: OpCode,
        protection: Protection,
        transferred: bool,
    ) -> Result<Status, Ending> {
        let data = [Extent { iova: self.data.iova(), len: (BLOCKS * self.stride(transferred)) as u64 }];
        let command = match opcode {
            OpCode::Read => IoCommand::read(SLBA, BLOCKS as u32, &data),
            OpCode::Write => IoCommand::write(SLBA, BLOCKS as u32, &data),
        };
        let mut command = command.with_protection(protection);
        if let Some(metadata) = self.metadata.as_ref().filter(|_| transferred) {
            let len = (BLOCKS * usize::from(self.format.metadata)) as u64;
            command = command.with_metadata(Extent { iova: metadata.iova(), len });
        }
        pair.submit_io(bench.namespace.nsid, &bench.limits, &command, 0)?;
        Ok(bench.complete(pair, 1)?[0].1)
    }
}

impl Format {
    fn name(&self) -> String {
        let Self { lba_size, metadata, protection, .. } = self;
        let place = if self.extended { "extended" } else { "separate" };
        format!("{lba_size} bytes with {metadata} of metadata, {place}, protection type {protection}")
    }

    /// What the driver must have understood of it.
    fn understood(&self) -> Option<MetadataFormat> {
        let kind = match self.protection {
            1 => Some(ProtectionType::Type1),
            2 => Some(ProtectionType::Type2),
            3 => Some(ProtectionType::Type3),
            _ => None,
        };
        (self.metadata > 0).then(|| MetadataFormat {
            size: self.metadata,
            placement: if self.extended { MetadataPlacement::Extended } else { MetadataPlacement::Separate },
            protection: kind.map(|kind| ProtectionFormat { kind, first: self.first }),
        })
    }

    /// Where in the metadata the tuple is.
    fn tuple(&self) -> std::ops::Range<usize> {
        let start = if self.first { 0 } else { usize::from(self.metadata) - ProtectionTuple::LENGTH };
        start..start + ProtectionTuple::LENGTH
    }

    /// The tuple that belongs to a block: guarded is its data, and the metadata before the tuple.
    fn tuple_of(&self, index: usize, block: &Block, application_tag: u16) -> ProtectionTuple {
        let mut digest = GUARD.digest();
        digest.update(&block.data);
        digest.update(&block.metadata[..self.tuple().start]);
        ProtectionTuple::new(digest.finalize(), application_tag, SLBA as u32 + index as u32)
    }

    /// Blocks that differ from one another and from those of another `seed`, with the tuples that they must have.
    fn blocks(&self, seed: u64) -> Vec<Block> {
        let block = |index: usize| {
            let bytes = |of: u64, len: usize| bytes_of(seed << 16 | of << 8 | index as u64, len);
            let mut block = Block { data: bytes(0, self.lba_size as usize), metadata: bytes(1, self.metadata.into()) };
            if self.protection > 0 {
                let tuple = self.tuple_of(index, &block, 0x5EED);
                block.metadata[self.tuple()].copy_from_slice(tuple.as_bytes());
            }
            block
        };
        (0..BLOCKS).map(block).collect()
    }
}

/// Does something on each namespace whose format is `wanted`.
fn each(
    special: &Special,
    wanted: impl Fn(&Format) -> bool,
    act: impl Fn(&Bench, &mut QueuePair<u32>, &Blocks) -> Verdict,
) -> Verdict {
    let mut bench = special.open(special.formats)?;
    let namespaces = bench.controller.namespaces()?;
    let mut pair = bench.pair(8)?;
    for (namespace, format) in namespaces.into_iter().zip(FORMATS).filter(|(_, format)| wanted(format)) {
        select(&mut bench, namespace)?;
        let (understood, right) = (bench.limits.metadata(), format.understood());
        ensure(understood == right && bench.limits.lba_size() == u64::from(format.lba_size), || {
            format!("{}: understood as {:?}", format.name(), bench.limits)
        })?;
        let blocks = Blocks::new(&bench, *format)?;
        act(&bench, &mut pair, &blocks).map_err(|ending| match ending {
            Ending::Failed(reason) => Ending::Failed(format!("{}: {reason}", format.name())),
            skipped => skipped,
        })?;
    }
    bench.finish(pair)
}

fn select(bench: &mut Bench, namespace: Namespace) -> Verdict {
    bench.limits = namespace.limits?;
    bench.namespace = namespace;
    Ok(())
}

fn succeeds(status: Status) -> Verdict {
    ensure(status.is_success(), || format!("ended with {status}"))
}

fn are(found: &[Block], expected: &[Block]) -> Verdict {
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    ensure(differs.is_none(), || format!("block {differs:?} is not what was written"))
}

/// All namespaces are there, and what is written to one of them is in no other.
pub(super) fn several(special: &Special) -> Verdict {
    let mut bench = special.open(special.formats)?;
    let namespaces = bench.controller.namespaces()?;
    let nsids: Vec<u32> = namespaces.iter().map(|namespace| namespace.nsid).collect();
    let expected: Vec<u32> = (1..=FORMATS.len() as u32).collect();
    ensure(nsids == expected, || format!("namespaces {nsids:?}"))?;
    let mut pair = bench.pair(8)?;
    let none = Protection::default();
    let mut written = Vec::new();
    for (namespace, format) in namespaces.into_iter().zip(FORMATS) {
        select(&mut bench, namespace.clone())?;
        let (blocks, data) = (Blocks::new(&bench, *format)?, format.blocks(namespace.nsid.into()));
        blocks.put(&data);
        succeeds(blocks.command(&bench, &mut pair, OpCode::Write, none, true)?)?;
        written.push((namespace, blocks, data));
    }
    for (namespace, blocks, data) in written {
        select(&mut bench, namespace)?;
        blocks.forget();
        succeeds(blocks.command(&bench, &mut pair, OpCode::Read, none, true)?)?;
        are(&blocks.take(), &data)?;
    }
    bench.finish(pair)
}

/// Metadata comes back as it was written.
pub(super) fn metadata(special: &Special) -> Verdict {
    each(
        special,
        |format| format.metadata > 0 && format.protection == 0,
        |bench, pair, blocks| {
            let data = blocks.format.blocks(1);
            blocks.put(&data);
            succeeds(blocks.command(bench, pair, OpCode::Write, Protection::default(), true)?)?;
            blocks.forget();
            succeeds(blocks.command(bench, pair, OpCode::Read, Protection::default(), true)?)?;
            are(&blocks.take(), &data)
        },
    )
}

fn checked(blocks: &Blocks) -> Result<Protection, Ending> {
    let format = blocks.format.understood().and_then(|format| format.protection);
    let format = format.ok_or_else(|| Ending::Failed("no protection".to_owned()))?;
    Ok(Protection::checked(format.kind, SLBA))
}

/// The controller checks what it is given: right information passes and comes back, a wrong guard is refused, and what
/// was there stays.
pub(super) fn protection(special: &Special) -> Verdict {
    each(
        special,
        |format| format.protection > 0,
        |bench, pair, blocks| {
            let checked = checked(blocks)?.with_application_tag(0x5EED, 0xFFFF);
            let data = blocks.format.blocks(2);
            blocks.put(&data);
            succeeds(blocks.command(bench, pair, OpCode::Write, checked, true)?)?;
            let mut wrong = blocks.format.blocks(3);
            let at = blocks.format.tuple().start;
            wrong[BLOCKS - 1].metadata[at] ^= 1;
            blocks.put(&wrong);
            let status = blocks.command(bench, pair, OpCode::Write, checked, true)?;
            ensure(status.code() == StatusCode::END_TO_END_GUARD_CHECK_ERROR, || format!("a wrong guard: {status}"))?;
            blocks.forget();
            succeeds(blocks.command(bench, pair, OpCode::Read, checked, true)?)?;
            are(&blocks.take(), &data)
        },
    )
}

/// The controller inserts the information on a write, where it is right, and strips or checks it on a read.
pub(super) fn generated(special: &Special) -> Verdict {
    each(
        special,
        |format| format.protection > 0,
        |bench, pair, blocks| {
            let checked = checked(blocks)?;
            let acted = Protection { lbat: 0x5EED, ..checked.generated() };
            // Where there is nothing else in the metadata, none of it is transferred.
            let transferred = usize::from(blocks.format.metadata) > ProtectionTuple::LENGTH;
            let data = blocks.format.blocks(4);
            if transferred {
                blocks.put(&data);
            } else {
                for (index, block) in data.iter().enumerate() {
                    blocks.data.view().write(index * blocks.stride(false), &block.data);
                }
            }
            succeeds(blocks.command(bench, pair, OpCode::Write, acted, transferred)?)?;
            blocks.forget();
            succeeds(blocks.command(bench, pair, OpCode::Read, checked, true)?)?;
            for (index, (found, block)) in blocks.take().iter().zip(&data).enumerate() {
                let tuple = ProtectionTuple::read_from_bytes(&found.metadata[blocks.format.tuple()]).ok();
                let mut right = blocks.format.tuple_of(index, block, 0x5EED);
                if blocks.format.protection == 3 {
                    right = ProtectionTuple::new(right.guard.get(), 0x5EED, SLBA as u32);
                }
                ensure(found.data == block.data && tuple == Some(right), || {
                    format!("block {index} has {tuple:?}, {right:?} would be right")
                })?;
            }
            blocks.forget();
            succeeds(blocks.command(bench, pair, OpCode::Read, acted, transferred)?)?;
            let stride = blocks.stride(transferred);
            for (index, block) in data.iter().enumerate() {
                let mut found = vec![0; block.data.len()];
                blocks.data.view().read(index * stride, &mut found);
                ensure(found == block.data, || format!("block {index} is another"))?;
            }
            Ok(())
        },
    )
}

/// The last namespace is formatted with blocks of 4,096 bytes, works, and is formatted back.
pub(super) fn changed(special: &Special) -> Verdict {
    let mut bench = special.open(special.formats)?;
    let namespaces = bench.controller.namespaces()?;
    let before = namespaces.last().cloned().ok_or_else(|| Ending::Failed("no namespace".to_owned()))?;
    let index = before.identify.format_index() as u8;
    let other = before.identify.lbaf.iter().position(|format| format.ms == 0 && format.lbads == 12);
    let other = other.ok_or_else(|| Ending::Failed("no format of 4,096 bytes".to_owned()))? as u8;
    let mut namespace = before.clone();
    for (format, lba_size) in [(other, 4096), (index, 512)] {
        let settings = FormatSettings {
            format,
            metadata: MetadataPlacement::Separate,
            protection: None,
            secure_erase: SecureEraseSettings::NONE,
        };
        let formatted = bench.controller.format_nvm(&namespace, settings, FORMATTING)?;
        namespace = formatted.ok_or_else(|| Ending::Failed("the namespace is gone".to_owned()))?;
        select(&mut bench, namespace.clone())?;
        ensure(bench.limits.lba_size() == lba_size, || format!("{:?}", bench.limits))?;
        let mut pair = bench.pair(8)?;
        let memory = bench.memory(lba_size)?;
        let view = memory.view().slice(0, lba_size as usize);
        let block = [Extent { iova: memory.iova(), len: lba_size }];
        fill(view, lba_size);
        bench.transfer(&mut pair, OpCode::Write, bench.limits.nsze() - 1, &block)?;
        view.fill(0xEE);
        bench.transfer(&mut pair, OpCode::Read, bench.limits.nsze() - 1, &block)?;
        holds(view, lba_size)?;
        bench.controller.delete_queue_pair(&mut pair)?;
    }
    ensure(bench.limits.nsze() == before.identify.nsze, || format!("{:?}", bench.limits))?;
    Ok(bench.controller.shutdown()?)
}
