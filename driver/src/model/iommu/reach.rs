//! Access to mapped memory, by IOVA.
//!
//! All that the model does to a host's memory goes through these few functions. None of them makes a reference to
//! it: the host may change it at any time, and a wrong host does.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{RwLock, RwLockReadGuard};

use super::{Mapping, Table, Window};
use crate::dma::Access;

/// Why an address could not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// Nothing is mapped there.
    Unmapped,
    /// What is mapped there may not be used in this way.
    Denied,
    /// What is mapped there is an accelerator's: plain reads and writes of a model with a mover reach it, nothing else.
    Accelerator,
}

/// An access that the IOMMU refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct Fault {
    /// The first address that was refused.
    pub(in crate::model) address: u64,
    /// What the model wanted to do there.
    pub(in crate::model) wanted: Access,
    /// Why it could not.
    pub(in crate::model) kind: FaultKind,
}

/// A range of IOVAs that a command names. Not an [`IovaRange`](crate::dma::IovaRange): the host may have written
/// zero, or anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct Extent {
    pub(in crate::model) address: u64,
    pub(in crate::model) len: u64,
}

/// Where the last look-up of a user of the table ended. A wrong one costs a search and nothing else.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::model) struct Hint(usize);

/// The table, held so that nothing is unmapped.
pub(in crate::model) struct Reach<'a> {
    mappings: RwLockReadGuard<'a, Vec<Mapping>>,
    window: Option<&'a Window>,
}

impl<'a> Reach<'a> {
    pub(super) fn new(mappings: RwLockReadGuard<'a, Vec<Mapping>>, window: Option<&'a Window>) -> Self {
        Self { mappings, window }
    }

    /// A table of those mappings that were made among the first `made`: what a device sees that looks with old eyes.
    /// Of use while this `Reach` is held and no longer.
    pub(in crate::model) fn as_of(&self, made: u32) -> Former<'_> {
        let old = self.mappings.iter().filter(|mapping| mapping.number < made).map(Mapping::duplicate).collect();
        Former {
            table: Table { mappings: RwLock::new(old), made: AtomicU32::new(made), ..Table::default() },
            reach: PhantomData,
        }
    }

    /// Whether anything is mapped at `address`.
    pub(in crate::model) fn is_mapped(&self, address: u64) -> bool {
        self.find(address, &mut Hint::default()).is_some()
    }

    /// The memory at `address`: at most `len` bytes, as far as one mapping goes.
    #[inline]
    pub(in crate::model) fn piece(
        &self,
        address: u64,
        len: u64,
        wanted: Access,
        hint: &mut Hint,
    ) -> Result<Piece<'_>, Fault> {
        let refused = |kind| Fault { address, wanted, kind };
        let (mapping, offset) = self.find(address, hint).ok_or(refused(FaultKind::Unmapped))?;
        if !mapping.access.contains(wanted) {
            return Err(refused(mapping.refusal()));
        }
        let len = len.min(mapping.range.len() - offset);
        // SAFETY: `offset` is less than the mapping's length, all of which is mapped in this process.
        let base = unsafe { mapping.base.add(offset as usize) };
        Ok(Piece { base, len: len as usize, reach: PhantomData })
    }

    /// As [`piece`](Self::piece), where memory of an accelerator is right too.
    pub(in crate::model) fn span(
        &self,
        address: u64,
        len: u64,
        wanted: Access,
        hint: &mut Hint,
    ) -> Result<Span<'_>, Fault> {
        match self.find(address, hint) {
            Some((mapping, offset)) if mapping.moved.contains(wanted) => {
                let address = mapping.base.addr().get() as u64 + offset;
                Ok(Span::Accelerator { address, len: len.min(mapping.range.len() - offset) })
            }
            Some((mapping, _)) if !mapping.moved.is_empty() => Err(Fault { address, wanted, kind: FaultKind::Denied }),
            _ => self.piece(address, len, wanted, hint).map(Span::Host),
        }
    }

    /// Reads `N` bytes into `to`: in place, so that an entry is copied once.
    #[inline]
    pub(in crate::model) fn read<const N: usize>(
        &self,
        address: u64,
        to: &mut [u8; N],
        hint: &mut Hint,
    ) -> Result<(), Fault> {
        let piece = self.piece(address, N as u64, Access::DEVICE_READS, hint)?;
        if piece.len != N {
            return self.read_across(address, to, hint);
        }
        // SAFETY: the piece has N bytes (see `Piece`), `to` is ours.
        unsafe { ptr::copy_nonoverlapping(piece.base.as_ptr(), to.as_mut_ptr(), N) };
        Ok(())
    }

    /// Reads the 64-bit words from `address` on into the whole of `words`.
    pub(in crate::model) fn read_words(&self, address: u64, words: &mut [u64], hint: &mut Hint) -> Result<(), Fault> {
        use zerocopy::IntoBytes;
        self.read_across(address, words.as_mut_bytes(), hint)
    }

    /// Reads bytes that may lie in several mappings.
    fn read_across(&self, mut address: u64, to: &mut [u8], hint: &mut Hint) -> Result<(), Fault> {
        let mut done = 0;
        while done < to.len() {
            let piece = self.piece(address, (to.len() - done) as u64, Access::DEVICE_READS, hint)?;
            // SAFETY: `piece` asked for no more than is left of `to`, and has that many bytes (see `Piece`).
            unsafe { ptr::copy_nonoverlapping(piece.base.as_ptr(), to[done..].as_mut_ptr(), piece.len) };
            done += piece.len;
            // The end of a mapping is a 64-bit value.
            address += piece.len as u64;
        }
        Ok(())
    }

    /// Writes four dwords at `address`, the last after the others for whoever reads it with Acquire: a CQE, whose
    /// last dword holds the phase.
    #[inline]
    pub(in crate::model) fn publish(&self, address: u64, dwords: [u32; 4], hint: &mut Hint) -> Result<(), Fault> {
        let wanted = Access::DEVICE_WRITES;
        let piece = self.piece(address, 16, wanted, hint)?;
        let dword = piece.base.cast::<u32>();
        if piece.len != 16 || !dword.is_aligned() {
            return Err(Fault { address, wanted, kind: FaultKind::Unmapped });
        }
        // SAFETY: the piece has 16 bytes (see `Piece`) and is aligned; who reads them uses volatile or atomic access.
        unsafe {
            dword.write_volatile(dwords[0]);
            dword.add(1).write_volatile(dwords[1]);
            dword.add(2).write_volatile(dwords[2]);
            AtomicU32::from_ptr(dword.add(3).as_ptr()).store(dwords[3], Ordering::Release);
        }
        Ok(())
    }

    /// Reads the dword at `address` as one, before whatever is read after it.
    pub(in crate::model) fn load_dword(&self, address: u64, hint: &mut Hint) -> Result<u32, Fault> {
        self.dword(address, Access::DEVICE_READS, hint).map(|dword| dword.load(Ordering::Acquire))
    }

    /// Writes the dword at `address` as one, after whatever was written before it.
    pub(in crate::model) fn store_dword(&self, address: u64, value: u32, hint: &mut Hint) -> Result<(), Fault> {
        self.dword(address, Access::DEVICE_WRITES, hint).map(|dword| dword.store(value, Ordering::Release))
    }

    fn dword(&self, address: u64, wanted: Access, hint: &mut Hint) -> Result<&AtomicU32, Fault> {
        let piece = self.piece(address, 4, wanted, hint)?;
        let dword = piece.base.cast::<u32>();
        if piece.len != 4 || !dword.is_aligned() {
            return Err(Fault { address, wanted, kind: FaultKind::Unmapped });
        }
        // SAFETY: the piece has 4 bytes (see `Piece`) and is aligned; it stays mapped as long as this `Reach`, and who
        // else touches it uses volatile or atomic access.
        Ok(unsafe { AtomicU32::from_ptr(dword.as_ptr()) })
    }

    /// The mapping that `address` lies in, and how far in.
    #[inline]
    fn find(&self, address: u64, hint: &mut Hint) -> Option<(&Mapping, u64)> {
        if let Some(mapping) = self.mappings.get(hint.0) {
            let offset = address.wrapping_sub(mapping.range.start().get());
            if offset < mapping.range.len() {
                return Some((mapping, offset));
            }
        }
        self.search(address, hint)
    }

    /// Out of the way of those who find it by the hint.
    #[cold]
    #[inline(never)]
    fn search(&self, address: u64, hint: &mut Hint) -> Option<(&Mapping, u64)> {
        if let Some(found) = self.window.and_then(|window| window.find(address)) {
            return Some(found);
        }
        let at = self.mappings.partition_point(|mapping| mapping.range.end() <= address);
        let mapping = self.mappings.get(at)?;
        let offset = address.checked_sub(mapping.range.start().get())?;
        hint.0 = at;
        Some((mapping, offset))
    }
}

impl Mapping {
    /// Why an access that it does not allow is refused.
    #[cold]
    fn refusal(&self) -> FaultKind {
        if self.moved.is_empty() { FaultKind::Denied } else { FaultKind::Accelerator }
    }
}

/// A table as it was, tied to the [`Reach`] that keeps its mappings from being unmapped.
pub(in crate::model) struct Former<'a> {
    table: Table,
    reach: PhantomData<&'a ()>,
}

impl Former<'_> {
    pub(in crate::model) fn reach(&self) -> Reach<'_> {
        self.table.reach()
    }
}

/// Bytes of one mapping: `len` bytes from `base`, mapped in this process as long as the [`Reach`] that they came
/// from. The host may touch them at any time.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct Piece<'a> {
    base: NonNull<u8>,
    len: usize,
    reach: PhantomData<&'a ()>,
}

impl<'a> Piece<'a> {
    /// The bytes of a buffer of our own, which nobody else uses meanwhile.
    pub(in crate::model) fn over(bytes: &'a mut [u8]) -> Self {
        Self { base: NonNull::from(&mut *bytes).cast(), len: bytes.len(), reach: PhantomData }
    }
}

impl Piece<'_> {
    #[inline]
    pub(in crate::model) fn base(&self) -> NonNull<u8> {
        self.base
    }

    #[inline]
    pub(in crate::model) fn len(&self) -> usize {
        self.len
    }
}

/// Bytes of one mapping, whoever can touch them, as long as the [`Reach`] that they came from.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) enum Span<'a> {
    /// This process.
    Host(Piece<'a>),
    /// An accelerator, at an address of its own.
    Accelerator { address: u64, len: u64 },
}

impl Span<'_> {
    pub(in crate::model) fn len(&self) -> u64 {
        match self {
            Self::Host(piece) => piece.len() as u64,
            Self::Accelerator { len, .. } => *len,
        }
    }

    /// The first `most` bytes of it, or all.
    pub(in crate::model) fn shortened(self, most: u64) -> Self {
        match self {
            Self::Host(piece) => {
                Self::Host(Piece { len: piece.len.min(usize::try_from(most).unwrap_or(usize::MAX)), ..piece })
            }
            Self::Accelerator { address, len } => Self::Accelerator { address, len: len.min(most) },
        }
    }
}

/// The memory of one command, in order. Kept from command to command so that none allocates.
#[derive(Default)]
pub(in crate::model) struct Pieces {
    /// Emptied before each use. What a former use left here is never looked at: it may be unmapped by now.
    list: Vec<Piece<'static>>,
    hint: Hint,
    /// A fault: only the first half is moved.
    torn: bool,
}

// SAFETY: the addresses left in the list are never used (see there); those in use are lent out with the `Reach`.
unsafe impl Send for Pieces {}

impl Pieces {
    /// From now on, or no longer, only the first half of what is found is given out.
    pub(in crate::model) fn set_torn(&mut self, torn: bool) {
        self.torn = torn;
    }

    pub(in crate::model) fn is_torn(&self) -> bool {
        self.torn
    }

    #[cold]
    fn tear(&mut self) {
        let mut left = self.list.iter().map(|piece| piece.len).sum::<usize>() / 2;
        for piece in &mut self.list {
            piece.len = piece.len.min(left);
            left -= piece.len;
        }
        self.list.retain(|piece| piece.len > 0);
    }

    /// Finds all of `extents`, none of them touched before the last is found.
    #[inline(always)]
    pub(in crate::model) fn resolve<'a>(
        &'a mut self,
        reach: &'a Reach<'_>,
        extents: &[Extent],
        wanted: Access,
    ) -> Result<&'a [Piece<'a>], Fault> {
        self.list.clear();
        for extent in extents {
            let Extent { mut address, mut len } = *extent;
            while len > 0 {
                let piece = reach.piece(address, len, wanted, &mut self.hint)?;
                self.list.push(Piece { base: piece.base, len: piece.len, reach: PhantomData });
                len -= piece.len as u64;
                // The end of a mapping is a 64-bit value.
                address += piece.len as u64;
            }
        }
        if self.torn {
            self.tear();
        }
        Ok(&self.list)
    }

    /// [`resolve`](Self::resolve), out of the way of those who do it for every command.
    #[cold]
    #[inline(never)]
    pub(in crate::model) fn resolve_rarely<'a>(
        &'a mut self,
        reach: &'a Reach<'_>,
        extents: &[Extent],
        wanted: Access,
    ) -> Result<&'a [Piece<'a>], Fault> {
        self.resolve(reach, extents, wanted)
    }
}

/// Writes `bytes` to the first of `pieces`, and zeroes to what is left of them.
pub(in crate::model) fn write_padded(pieces: &[Piece<'_>], mut bytes: &[u8]) {
    for piece in pieces {
        let (now, later) = bytes.split_at(bytes.len().min(piece.len));
        // SAFETY: the piece has `piece.len` bytes (see `Piece`), and `now` no more.
        unsafe {
            ptr::copy_nonoverlapping(now.as_ptr(), piece.base.as_ptr(), now.len());
            piece.base.add(now.len()).write_bytes(0, piece.len - now.len());
        }
        bytes = later;
    }
}

/// Copies from `pieces`, in order, until `to` is full or the pieces are at their end.
pub(in crate::model) fn gather_into(pieces: &[Piece<'_>], to: &mut [u8]) {
    let mut done = 0;
    for piece in pieces {
        let part = &mut to[done..];
        let len = part.len().min(piece.len);
        // SAFETY: `len` is at most the piece's length (see `Piece`) and that of `part`, which is ours.
        unsafe { ptr::copy_nonoverlapping(piece.base.as_ptr(), part.as_mut_ptr(), len) };
        done += len;
    }
}

/// Copies bytes into pieces one after the other, from call to call.
pub(in crate::model) struct Scatter<'a> {
    pieces: &'a [Piece<'a>],
    /// Bytes of the first piece that are written already.
    done: usize,
}

impl<'a> Scatter<'a> {
    pub(in crate::model) fn new(pieces: &'a [Piece<'a>]) -> Self {
        Self { pieces, done: 0 }
    }

    /// Writes `bytes` where the call before ended. What the pieces have no room for is left out.
    pub(in crate::model) fn write(&mut self, mut bytes: &[u8]) {
        while let Some(piece) = self.pieces.first()
            && !bytes.is_empty()
        {
            let (now, later) = bytes.split_at(bytes.len().min(piece.len - self.done));
            // SAFETY: the piece has `piece.len` bytes (see `Piece`), of which `now` takes no more than are left.
            unsafe { ptr::copy_nonoverlapping(now.as_ptr(), piece.base.as_ptr().add(self.done), now.len()) };
            self.done += now.len();
            if self.done == piece.len {
                (self.pieces, self.done) = (&self.pieces[1..], 0);
            }
            bytes = later;
        }
    }
}

/// Reads the whole of `pieces`, one after the other.
#[cold]
pub(in crate::model) fn gather(pieces: &[Piece<'_>]) -> Vec<u8> {
    let mut bytes = vec![0; pieces.iter().map(|piece| piece.len).sum()];
    gather_into(pieces, &mut bytes);
    bytes
}
