//! io_uring into pinned memory, and copies that are waited for together.
//!
//! A buffer is taken for a read, given to a copy when the read has ended, and free when the stream has come past the copy:
//! the GPU writes the number of the last such copy to a word in pinned memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use io_uring::{IoUring, opcode, types};

use super::{FileRead, FileWayConfig, FileWayError, Reads};
use crate::dma::Backing;
use crate::gpu::device::Gpu;
use crate::gpu::memory::{GpuMemory, PinnedMemory};
use crate::gpu::stream::Stream;

/// io_uring and cuMemcpyAsync, by the caller's thread.
pub(super) struct Ring {
    // First, so that nothing is in flight into what follows.
    ring: IoUring,
    stream: Stream,
    /// Dropped where nothing is in flight into them any more.
    buffers: ManuallyDrop<PinnedMemory>,
    word: PinnedMemory,
    file: File,
    stride: u64,
    free: Vec<usize>,
    /// Buffers that copies read, with the number after which they are free.
    copied: VecDeque<(u32, usize)>,
    sequence: u32,
    /// Reads that have not ended.
    in_flight: usize,
}

impl Ring {
    pub(super) fn new(gpu: &Arc<Gpu>, file: File, config: FileWayConfig) -> Result<Self, FileWayError> {
        let depth = config.depth.clamp(1, 4096);
        let ring = IoUring::new(depth.next_power_of_two()).map_err(|source| FileWayError::Uring { source })?;
        let stride = config.most.max(1).next_multiple_of(4096);
        // Twice as many as reads in flight: one half is read into while the other is copied.
        let count = 2 * depth as usize;
        let buffers = PinnedMemory::allocate(gpu, stride as usize * count)?;
        Ok(Self {
            ring,
            stream: Stream::new(gpu)?,
            buffers: ManuallyDrop::new(buffers),
            word: PinnedMemory::allocate(gpu, 4096)?,
            file,
            stride,
            free: (0..count).collect(),
            copied: VecDeque::new(),
            sequence: 0,
            in_flight: 0,
        })
    }

    /// Buffers that no copy reads any more.
    fn collect(&mut self) {
        let done = self.word.view().atomic_u32(0).load(Ordering::Acquire);
        while let Some((number, buffer)) = self.copied.front().copied()
            && done.wrapping_sub(number) as i32 >= 0
        {
            self.copied.pop_front();
            self.free.push(buffer);
        }
    }

    /// Asks for a read into a buffer. Whether there was one, and room in the ring.
    fn ask(&mut self, number: usize, read: FileRead) -> bool {
        if self.ring.submission().is_full() {
            return false;
        }
        let Some(buffer) = self.free.pop() else { return false };
        let target = self.buffers.base().as_ptr().wrapping_add(buffer * self.stride as usize);
        let entry = opcode::Read::new(types::Fd(self.file.as_raw_fd()), target, read.len as u32)
            .offset(read.offset)
            .build()
            .user_data((number as u64) << 32 | buffer as u64);
        // SAFETY: the buffer is pinned memory of ours, as long as the longest read, and nobody else's until the read has
        // ended; the file stays open.
        let pushed = unsafe { self.ring.submission().push(&entry) }.is_ok();
        self.in_flight += usize::from(pushed);
        pushed
    }

    /// Waits for a read where one is in flight: what each was asked for by, and how it ended.
    fn wait(&mut self) -> Result<Vec<(u64, i32)>, FileWayError> {
        match self.ring.submit_and_wait(usize::from(self.in_flight > 0)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(FileWayError::Uring { source: error }),
            _ => {
                let ended: Vec<_> = self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
                self.in_flight -= ended.len();
                Ok(ended)
            }
        }
    }

    /// Begins the copy of a buffer that was read into.
    fn copy(&mut self, memory: &GpuMemory, buffer: usize, read: FileRead) -> Result<(), FileWayError> {
        let from = self.buffers.address() + buffer as u64 * self.stride;
        // SAFETY: the buffer is not used again before the copy is done, and the target lies in the memory, as the reader has
        // checked; both outlive the wait at the end.
        Ok(unsafe { self.stream.copy(memory.address() + read.at, from, read.len as usize) }?)
    }

    /// Has the GPU say when it has come past the copies of these buffers.
    fn mark(&mut self, buffers: Vec<usize>) -> Result<(), FileWayError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.copied.extend(buffers.into_iter().map(|buffer| (self.sequence, buffer)));
        // SAFETY: the word is ours, and only this stream writes it.
        Ok(unsafe { self.stream.write_value(self.word.address(), self.sequence) }?)
    }
}

impl Reads for Ring {
    fn read(&mut self, memory: &GpuMemory, reads: &[FileRead]) -> Result<(), FileWayError> {
        let depth = self.ring.params().sq_entries() as usize;
        let (mut begun, mut ended, mut failed) = (0, 0, None);
        while ended < reads.len() {
            self.collect();
            while begun < reads.len() && begun - ended < depth && failed.is_none() {
                let read = reads[begun];
                if read.len > self.stride {
                    failed = Some(FileWayError::Read { offset: read.offset, len: read.len, result: 0 });
                } else if self.ask(begun, read) {
                    begun += 1;
                } else {
                    break;
                }
            }
            if failed.is_some() && begun == ended {
                break;
            }
            let mut group = Vec::new();
            for (data, result) in self.wait()? {
                let (number, buffer) = ((data >> 32) as usize, data as u32 as usize);
                let read = reads[number];
                ended += 1;
                let copied = match i64::from(result) == read.len as i64 {
                    true => self.copy(memory, buffer, read),
                    false => Err(FileWayError::Read { offset: read.offset, len: read.len, result: result.into() }),
                };
                match copied {
                    Ok(()) => group.push(buffer),
                    Err(error) => {
                        failed.get_or_insert(error);
                        self.free.push(buffer);
                    }
                }
            }
            if let Some(error) = (!group.is_empty()).then(|| self.mark(group)).and_then(Result::err) {
                failed.get_or_insert(error);
            }
        }
        self.stream.synchronize()?;
        self.collect();
        failed.map_or(Ok(()), Err)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight > 0 && self.wait().is_ok() {}
        let _ = self.stream.synchronize();
        if self.in_flight == 0 {
            // SAFETY: dropped here alone. Otherwise the kernel may still write there: it is left.
            unsafe { ManuallyDrop::drop(&mut self.buffers) }
        }
    }
}
