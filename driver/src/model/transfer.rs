//! From the data and metadata pointers of a command to pieces of memory.

use super::board::Board;
use super::io_config::{SglConfig, SglSupport};
use super::iommu::{Extent, Fault, Hint, Piece, Pieces, Reach, Scatter, Span, gather_into};
use super::mover::Moves;
use super::prp::{PrpError, PrpWalk};
use super::sgl::{Flow, SglError, SglWalk, Skip};
use super::violation::{Target, Violation};
use crate::dma::Access;
use crate::spec::command::{Psdt, Sqe};
use crate::spec::sgl::SglDescriptor;
use crate::spec::status::{Status, StatusCode};

/// A status that will not change when the command is sent again.
pub(super) fn permanent(code: StatusCode) -> Status {
    code.status().with_dnr(true)
}

/// What it takes to find the memory of a command, kept from command to command.
#[derive(Default)]
pub(super) struct Transfer {
    data: DataSide,
    /// Bytes of a memory page, CC.MPS.
    pub(super) page_size: u64,
    metadata: MetadataSide,
    sgl: SglConfig,
    /// What copies to and from memory of an accelerator, if anything does.
    pub(super) moves: Option<Box<Moves>>,
}

/// For the data pointer.
#[derive(Default)]
struct DataSide {
    prps: PrpWalk,
    pieces: Pieces,
    sgl: SglWalk,
}

/// For the metadata pointer.
#[derive(Default)]
struct MetadataSide {
    pieces: Pieces,
    sgl: SglWalk,
    hint: Hint,
}

/// A command, and where to record what is wrong with it.
#[derive(Clone, Copy)]
struct Command<'a> {
    board: &'a Board,
    sqid: u16,
    sqe: &'a Sqe,
}

/// Bytes that a command moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lengths {
    /// Through its data pointer.
    pub(super) data: u64,
    /// Through its metadata pointer.
    pub(super) metadata: u64,
}

/// The memory of a command: where its data and its separate metadata lie.
pub(super) struct Buffers<'a> {
    pub(super) data: Memory<'a>,
    pub(super) metadata: Memory<'a>,
}

/// Memory in pieces, of which parts may be missing: what is meant for them is dropped.
pub(super) struct Memory<'a> {
    pieces: &'a [Piece<'a>],
    skips: &'a [Skip],
}

impl<'a> Memory<'a> {
    /// The pieces, where none of it is missing.
    pub(super) fn whole(&self) -> Option<&'a [Piece<'a>]> {
        self.skips.is_empty().then_some(self.pieces)
    }

    /// Copies all of it into `to`, which is as long. Nothing is missing in memory that is read from.
    pub(super) fn gather(&self, to: &mut [u8]) {
        gather_into(self.pieces, to);
    }

    /// A writer that begins at its start.
    pub(super) fn writer(&self) -> MemoryWriter<'a> {
        MemoryWriter { scatter: Scatter::new(self.pieces), skips: self.skips, position: 0 }
    }
}

/// Writes to memory from its start on.
pub(super) struct MemoryWriter<'a> {
    scatter: Scatter<'a>,
    skips: &'a [Skip],
    position: u64,
}

impl MemoryWriter<'_> {
    /// Writes `bytes` where the call before ended.
    pub(super) fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (skip, part) = match self.skips.first() {
                Some(skip) if skip.start <= self.position => (true, skip.start + skip.len - self.position),
                Some(skip) => (false, skip.start - self.position),
                None => (false, u64::MAX),
            };
            let (now, later) = bytes.split_at(bytes.len().min(usize::try_from(part).unwrap_or(usize::MAX)));
            self.position += now.len() as u64;
            if !skip {
                self.scatter.write(now);
            } else if now.len() as u64 == part {
                self.skips = &self.skips[1..];
            }
            bytes = later;
        }
    }
}

impl Transfer {
    pub(super) fn new(sgl: SglConfig) -> Self {
        let data = DataSide { sgl: SglWalk::new(sgl), ..DataSide::default() };
        let metadata = MetadataSide { sgl: SglWalk::new(sgl), ..MetadataSide::default() };
        Self { data, metadata, sgl, page_size: 0, moves: None }
    }

    /// From now on, or no longer, only the first half of a command's data is moved: a fault.
    pub(super) fn set_torn(&mut self, torn: bool) {
        self.data.pieces.set_torn(torn);
    }

    /// Whether only the first half of a command's data is moved.
    pub(super) fn is_torn(&self) -> bool {
        self.data.pieces.is_torn()
    }

    /// The memory that the PRPs of `sqe` of queue `sqid` name for its `len` bytes, all of it mapped for `wanted`. What
    /// is wrong is recorded on the board. That they are PRPs the caller has seen.
    #[inline]
    pub(super) fn resolve<'a>(
        &'a mut self,
        reach: &'a Reach<'_>,
        board: &Board,
        sqid: u16,
        sqe: &Sqe,
        len: u64,
        wanted: Access,
    ) -> Result<&'a [Piece<'a>], Status> {
        debug_assert!(sqe.psdt() == Psdt::PRP);
        self.data.prps(reach, self.page_size, Command { board, sqid, sqe }, len, wanted)
    }

    /// Calls `each` for the memory that the PRPs of `sqe` name, piece by piece, with how far into the data it is and with
    /// what makes copies; an accelerator's is among it. All of it is found before the first call. What is wrong is
    /// recorded on the board.
    pub(super) fn spans(
        &mut self,
        reach: &Reach<'_>,
        (board, sqid, sqe): (&Board, u16, &Sqe),
        len: u64,
        wanted: Access,
        mut each: impl FnMut(&mut Moves, u64, Span<'_>) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let Self { data, page_size, moves, .. } = self;
        let Some(moves) = moves.as_deref_mut() else {
            return Err(permanent(StatusCode::INTERNAL_ERROR));
        };
        data.walk(reach, *page_size, Command { board, sqid, sqe }, len)?;
        let target = Target::Data { sqid, cid: sqe.cid };
        let mut hint = moves.hint;
        let torn = data.pieces.is_torn();
        let extents = data.prps.extents();
        each_span(reach, extents, wanted, &mut hint, |_, _| ()).map_err(|fault| refuse_access(board, target, fault))?;
        moves.hint = hint;
        let most = if torn { len / 2 } else { len };
        let mut status = Ok(());
        let found = each_span(reach, extents, wanted, &mut hint, |done, span| {
            if status.is_ok() && done < most {
                status = each(moves, done, span.shortened(most - done));
            }
        });
        found.map_err(|fault| refuse_access(board, target, fault)).and(status)
    }

    /// The memory that `sqe` names in whichever way for its data and its separate metadata, all of it mapped for
    /// `wanted`. What is wrong is recorded on the board.
    pub(super) fn buffers<'a>(
        &'a mut self,
        reach: &'a Reach<'_>,
        board: &Board,
        sqid: u16,
        sqe: &Sqe,
        lengths: Lengths,
        wanted: Access,
    ) -> Result<Buffers<'a>, Status> {
        let sgls = self.sgl.support != SglSupport::NotSupported;
        let supported = match sqe.psdt() {
            Psdt::PRP => true,
            Psdt::SGL_MPTR_BUFFER => sgls,
            Psdt::SGL_MPTR_SGL => sgls && self.sgl.metadata_sgl,
            _ => false,
        };
        if !supported {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        let command = Command { board, sqid, sqe };
        let any_byte = sqe.psdt() == Psdt::SGL_MPTR_BUFFER && self.sgl.metadata_byte_aligned;
        let metadata = match lengths.metadata {
            0 => Memory { pieces: &[], skips: &[] },
            len if sqe.psdt() == Psdt::SGL_MPTR_SGL => self.metadata.sgl(reach, command, len, wanted)?,
            len => self.metadata.buffer(reach, command, any_byte, len, wanted)?,
        };
        let data = if sqe.psdt() == Psdt::PRP {
            let pieces = self.data.prps(reach, self.page_size, command, lengths.data, wanted)?;
            Memory { pieces, skips: &[] }
        } else {
            self.data.sgl(reach, command, lengths.data, wanted)?
        };
        Ok(Buffers { data, metadata })
    }
}

impl DataSide {
    // In each of its two callers: one of them is what every plain command goes through.
    #[inline(always)]
    fn prps<'a>(
        &'a mut self,
        reach: &'a Reach<'_>,
        page_size: u64,
        command: Command<'_>,
        len: u64,
        wanted: Access,
    ) -> Result<&'a [Piece<'a>], Status> {
        self.walk(reach, page_size, command, len)?;
        let Command { board, sqid, sqe } = command;
        let data = Target::Data { sqid, cid: sqe.cid };
        self.pieces.resolve(reach, self.prps.extents(), wanted).map_err(|fault| refuse_access(board, data, fault))
    }

    /// Walks the PRPs.
    #[inline(always)]
    fn walk(&mut self, reach: &Reach<'_>, page_size: u64, command: Command<'_>, len: u64) -> Result<(), Status> {
        let Command { board, sqid, sqe } = command;
        let walked = self.prps.walk(reach, page_size, (sqe.prp1, sqe.prp2), len);
        if self.prps.list_pages() > 0 {
            board.counters.prp_list_entries.add(self.prps.list_entries());
            board.counters.prp_list_pages.add(self.prps.list_pages());
        }
        if let Err(error) = walked {
            return Err(refuse_walk(board, sqid, sqe.cid, error));
        }
        Ok(())
    }

    fn sgl<'a>(
        &'a mut self,
        reach: &'a Reach<'_>,
        command: Command<'_>,
        len: u64,
        wanted: Access,
    ) -> Result<Memory<'a>, Status> {
        let Command { board, sqid, sqe } = command;
        let first = (0, sqe.sgl1());
        command.walk_sgl(reach, &mut self.sgl, first, (len, StatusCode::DATA_SGL_LENGTH_INVALID), wanted)?;
        let data = Target::Data { sqid, cid: sqe.cid };
        let pieces = self.pieces.resolve_rarely(reach, self.sgl.extents(), wanted);
        let pieces = pieces.map_err(|fault| refuse_access(board, data, fault))?;
        Ok(Memory { pieces, skips: self.sgl.skips() })
    }
}

impl MetadataSide {
    /// MPTR points to the metadata itself.
    fn buffer<'a>(
        &'a mut self,
        reach: &'a Reach<'_>,
        command: Command<'_>,
        any_byte: bool,
        len: u64,
        wanted: Access,
    ) -> Result<Memory<'a>, Status> {
        let Command { board, sqid, sqe } = command;
        if !any_byte && !sqe.mptr.is_multiple_of(4) {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        let metadata = Target::Metadata { sqid, cid: sqe.cid };
        let pieces = self.pieces.resolve_rarely(reach, &[Extent { address: sqe.mptr, len }], wanted);
        let pieces = pieces.map_err(|fault| refuse_access(board, metadata, fault))?;
        Ok(Memory { pieces, skips: &[] })
    }

    /// MPTR points to a segment of one descriptor.
    fn sgl<'a>(
        &'a mut self,
        reach: &'a Reach<'_>,
        command: Command<'_>,
        len: u64,
        wanted: Access,
    ) -> Result<Memory<'a>, Status> {
        let Command { board, sqid, sqe } = command;
        if !sqe.mptr.is_multiple_of(8) {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        let mut words = [0; 2];
        let segment = Target::SglSegment { sqid, cid: sqe.cid };
        let read = reach.read_words(sqe.mptr, &mut words, &mut self.hint);
        read.map_err(|fault| refuse_access(board, segment, fault))?;
        let first = (sqe.mptr, SglDescriptor::from_words(words));
        command.walk_sgl(reach, &mut self.sgl, first, (len, StatusCode::METADATA_SGL_LENGTH_INVALID), wanted)?;
        let metadata = Target::Metadata { sqid, cid: sqe.cid };
        let pieces = self.pieces.resolve_rarely(reach, self.sgl.extents(), wanted);
        let pieces = pieces.map_err(|fault| refuse_access(board, metadata, fault))?;
        Ok(Memory { pieces, skips: self.sgl.skips() })
    }
}

impl Command<'_> {
    fn walk_sgl(
        self,
        reach: &Reach<'_>,
        walk: &mut SglWalk,
        first: (u64, SglDescriptor),
        (len, wrong_length): (u64, StatusCode),
        wanted: Access,
    ) -> Result<(), Status> {
        let Command { board, sqid, sqe } = self;
        let flow = if wanted.contains(Access::DEVICE_WRITES) { Flow::Destination } else { Flow::Source };
        let walked = walk.walk(reach, flow, first, len);
        board.counters.sgl_descriptors.add(walk.descriptors());
        board.counters.sgl_segments.add(walk.segments());
        let cid = sqe.cid;
        walked.map_err(|error| match error {
            SglError::Descriptor { at, descriptor, code } => {
                board.violations.record(Violation::Sgl { sqid, cid, at, descriptor, code });
                permanent(code)
            }
            SglError::Length { described } => {
                board.violations.record(Violation::SglLength { sqid, cid, described, wanted: len });
                permanent(wrong_length)
            }
            SglError::Segment(fault) => refuse_access(board, Target::SglSegment { sqid, cid }, fault),
        })
    }
}

/// Calls `each` for what lies at `extents`, in order, with how far into them it is.
fn each_span(
    reach: &Reach<'_>,
    extents: &[Extent],
    wanted: Access,
    hint: &mut Hint,
    mut each: impl FnMut(u64, Span<'_>),
) -> Result<(), Fault> {
    let mut done = 0;
    for extent in extents {
        let Extent { mut address, mut len } = *extent;
        while len > 0 {
            let span = reach.span(address, len, wanted, hint)?;
            each(done, span);
            let part = span.len();
            (done, len) = (done + part, len - part);
            // The end of a mapping is a 64-bit value.
            address += part;
        }
    }
    Ok(())
}

#[cold]
fn refuse_access(board: &Board, target: Target, fault: Fault) -> Status {
    board.counters.faults.add(1);
    board.violations.record(Violation::dma(target, fault));
    StatusCode::DATA_TRANSFER_ERROR.status()
}

#[cold]
fn refuse_walk(board: &Board, sqid: u16, cid: u16, error: PrpError) -> Status {
    match error {
        PrpError::Offset { place, entry } => {
            board.violations.record(Violation::PrpOffset { sqid, cid, place, entry });
            permanent(StatusCode::PRP_OFFSET_INVALID)
        }
        PrpError::List(fault) => refuse_access(board, Target::PrpList { sqid, cid }, fault),
    }
}
